"""check_plugin on the user's own data, on ranges, and on inputs whose sizes are alike by chance."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import models
from pytrtplugins.check.cases import Case
from pytrtplugins.check.rules import batch, symbolic_dims
from pytrtplugins.check.samples import own_inputs
from pytrtplugins.check.search import given_cases
from pytrtplugins.check.shared_dims import inputs_that_share
from pytrtplugins.errors import UsageError
from pytrtplugins.tensor import DType


@ptp.plugin(namespace="tests.own")
class Rows(ptp.Plugin):
    """Rows of a table by their numbers, which must lie inside of it."""

    def output_dims(self, table, index):
        if len(table) != 2 or len(index) != 1:
            raise ptp.errors.DimsError("a table and numbers")
        return *index, table[1]

    def output_dtypes(self, table, index):
        return table

    def supports_format(self, position, descs):
        return descs[position].dtype == (DType.INT32 if position == 1 else DType.FLOAT32)

    def compute(self, table, index):
        if index.size and not 0 <= int(index.min()) <= int(index.max()) < len(table):
            raise IndexError("outside of the table")
        return table[index]


@ptp.plugin(namespace="tests.own")
class ChannelScale(ptp.Plugin):
    """x times a number for each channel."""

    def output_dims(self, x, scale):
        if len(x) < 2 or len(scale) != 1 or scale[0] != x[1]:
            raise ptp.errors.DimsError(f"{x} and {scale}")
        return x

    def compute(self, x, scale):
        return x * scale.reshape(-1, *[1] * (x.ndim - 2))


@ptp.plugin(namespace="tests.own")
class Mixed(ChannelScale):
    """The first image gets the mean of all."""

    def compute(self, x, scale):
        return x * scale.reshape(-1, *[1] * (x.ndim - 2)) + x.mean(axis=0, keepdims=True)


TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_own_arrays_are_what_every_engine_computes_on():
    seen = []

    @ptp.plugin(namespace="tests.own")
    class Seen(Rows):
        def compute(self, table, index):
            seen.append(index.tolist())
            return super().compute(table, index)

    report = ptp.check_plugin(Seen, inputs={"table": TABLE, "index": np.array([3, 0], np.int32)})
    assert report.ok, report
    assert report["dims"].tried == "1 case, 1 set of field values: 4x3 2"
    assert [3, 0] in seen
    assert "engine reference" in [entry.name for entry in report.entries if not entry.skipped]


def test_a_range_bounds_integers_and_finds_shapes_of_its_own():
    report = ptp.check_plugin(Rows, inputs={"index": (0, 0)}, engines=["reference"])
    assert report.ok, report
    without = ptp.check_plugin(Rows, engines=[])
    assert "outside of the table" in str(without)


def test_own_data_that_fails_is_reported_on_own_data():
    report = ptp.check_plugin(Rows, inputs=[TABLE, np.array([3, 4], np.int32)], engines=[])
    assert not report.ok
    assert "outside of the table" in str(report)


def test_types_that_the_plugin_does_not_take_are_said():
    report = ptp.check_plugin(Rows, inputs=[TABLE, np.array([1, 2], np.int64)], engines=[])
    assert "supports_format" in report.failed[-1].detail
    assert "int64" in str(report.failed)


def test_a_plugin_of_any_number_of_inputs_has_at_most_64():
    @ptp.plugin(namespace="tests.own")
    class Sum(ptp.Plugin):
        def output_dims(self, *inputs):
            return inputs[0]

        def compute(self, *arrays):
            return sum(arrays)

    assert len(own_inputs(Sum(), [TABLE] * 64)) == 64
    with pytest.raises(UsageError, match="65 are given"):
        own_inputs(Sum(), [TABLE] * 65)


def test_inputs_are_cut_when_a_case_becomes_smaller_and_drawn_from_their_values_elsewhere():
    index = np.array([2, 3, 2, 3], np.int32)
    (case,) = given_cases(Rows(), [((4, 3), (4,))], 0, own_inputs(Rows(), [TABLE, index]))
    np.testing.assert_array_equal(case.inputs()[0], TABLE)
    assert case.dtypes == (DType.FLOAT32, DType.INT32)
    assert set(case.inputs(other=1)[1].tolist()) <= {2, 3}
    small = Case(Rows(), ((2, 3), (2,)), case.dtypes, 0, case.given)
    np.testing.assert_array_equal(small.inputs()[0], TABLE[:2])
    large = Case(Rows(), ((8, 3), (9,)), case.dtypes, 0, case.given)
    assert set(large.inputs()[1].tolist()) == {2, 3}
    small.inputs()[0][:] = 0
    assert TABLE[0, 1] == 1


def test_a_range_is_of_the_inputs_own_type():
    given = own_inputs(Rows(), {"table": (-0.5, 0.5), "index": (1, 3)})
    table, index = Case(Rows(), ((50, 3), (200,)), (DType.FLOAT32, DType.INT32), 0, given).inputs()
    assert -0.5 <= table.min() < -0.4 < 0.4 < table.max() <= 0.5
    assert set(index.tolist()) == {1, 2, 3}
    assert (table.dtype, index.dtype) == (np.float32, np.int32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"rows": TABLE}, "has no input 'rows'. Inputs: table, index"),
        ([TABLE, TABLE, TABLE], r"3 are given; Rows\(\) has 2"),
        ({"index": (3, 1)}, r"index: expected a range \(low, high\)"),
        ({"index": (0, float("nan"))}, r"index: expected a range \(low, high\)"),
        ({"table": np.zeros(2, complex)}, r"table: expected an array of float32.*found complex128\[2\]"),
        ({"table": "x"}, "table: expected an array"),
        ({"table": np.zeros((0, 3))}, r"with elements, or a range \(low, high\); found float32\[0, 3\]"),
    ],
)
def test_what_cannot_be_an_input_is_refused(inputs, message):
    with pytest.raises(UsageError, match=message):
        ptp.check_plugin(Rows, inputs=inputs)


def test_a_channel_count_that_equals_the_batch_by_chance_is_no_batch():
    case = Case(ChannelScale(), ((3, 3, 2, 2), (3,)), (DType.FLOAT32,) * 2)
    assert inputs_that_share(case, 0) == (0,)
    assert symbolic_dims(case) == ""
    assert batch(case) == ""
    mixed = Case(Mixed(), ((3, 3, 2, 2), (3,)), (DType.FLOAT32,) * 2)
    assert "changes when only the other images change" in batch(mixed)
    report = ptp.check_plugin(ChannelScale, shapes=[((3, 3, 2, 2), (3,))])
    assert report.ok, report


def test_inputs_that_must_change_together_share_the_dim():
    @ptp.plugin(namespace="tests.own")
    class Add(ptp.Plugin):
        def output_dims(self, x, y):
            return x

        def compute(self, x, y):
            if x.shape != y.shape:
                raise ValueError("shapes differ")
            return x + y

    case = Case(Add(), ((3, 3, 2, 2), (3, 3, 2, 2)), (DType.FLOAT32,) * 2)
    assert inputs_that_share(case, 0) == (0, 1)
    assert symbolic_dims(case) == ""


def test_each_input_is_a_constant_of_the_model_in_a_case_of_its_own(monkeypatch):
    runs, run = [], models._run

    def recorded(model, arrays, name):
        runs.append((name, [weight.name for weight in model.graph.initializer]))
        return run(model, arrays, name)

    monkeypatch.setattr(models, "_run", recorded)
    given = {"table": TABLE, "index": np.array([3, 0], np.int32)}
    report = ptp.check_plugin(Rows, inputs=given, engines=["reference", "onnxruntime"])
    assert report.ok, report
    assert runs == [(name, held) for name in ("reference", "onnxruntime") for held in ([], ["x0"], ["x1"])]


def test_the_command_takes_arrays_and_ranges(pytrt, tmp_path):
    from pytrtplugins.cli.shared.fields import read_samples

    np.save(tmp_path / "table.npy", TABLE)
    given = read_samples(["table=@table.npy", "index=0..3"])
    assert given
    np.testing.assert_array_equal(given["table"], TABLE)
    assert given["index"] == (0, 3)
    assert read_samples(["x=-1.5..2"]) == {"x": (-1.5, 2)}
    assert read_samples(None) is None
    for wrong in ("x=1", "x=a..b", "x=@none.npy", "x"):
        with pytest.raises(UsageError, match="--input x"):
            read_samples([wrong])


@ptp.plugin(namespace="own_inputs")
class Gated(ptp.Plugin):
    """An image, and a mask of nine channels with its height and width."""

    def output_dims(self, x, mask):
        if len(x) != 4 or mask != (x[0], 9, *x[2:]) or x[1] % 8:
            raise ptp.PytrtpluginsError("8 channels and a mask of 9")
        return x

    def compute(self, x, mask):
        return x * mask.sum(axis=1, keepdims=True, dtype=np.float32).astype(x.dtype)


def test_sizes_around_given_shapes_are_tried():
    shapes = {"x": (1, 8, 6, 5), "mask": (1, 9, 6, 5)}
    report = ptp.check_plugin(Gated, shapes=shapes, engines=[])
    assert report.ok, str(report)
    assert report["dims"].tried.startswith("7 cases, 1 set of field values: 1x8x6x5 1x9x6x5, 2x8x6x5 2x9x6x5")


def test_shapes_by_name_are_those_of_the_inputs():
    with pytest.raises(UsageError, match="has the inputs x, mask; given are x"):
        ptp.check_plugin(Gated, shapes={"x": (1, 8, 6, 5)})
