"""Convolutions of one tensor become one, and concats lie over what it writes: plans, and that the numbers stay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.lower.rewrite import DOMAIN
from pytrtplugins.layers import Reorg
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.tensor import DType
from tests.engines.cuda.activations import SLOPES, WRITTEN, write
from tests.engines.cuda.branches import dense, inception, joined, networks, partial, stacked
from tests.engines.cuda.host import activated, assert_near, assert_same, by_reference, run_on_host, run_shuffled
from tests.passes.nets import Net, Swap

X = {"data": np.random.default_rng(2).standard_normal((2, 8, 8, 8), dtype=np.float32)}
WIDE = {"data": np.random.default_rng(2).standard_normal((2, 16, 8, 8), dtype=np.float32)}
TYPES = pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])


def assert_right(model, float_type=DType.FLOAT32, disable=()):
    """The reference engine's numbers, in any order of the streams; gives the plan."""
    prepared = prepare(model)
    found, execution = run_on_host(prepared, X, float_type, disable)
    room = 2e-5 if float_type is DType.FLOAT32 else 1e-2
    assert_near(found, by_reference(prepared, X), room)
    for seed in range(3):
        assert_same(run_shuffled(execution, X, seed)[0], found)
    return execution.plan


def assert_codes(model):
    found, execution = run_on_host(model, X)
    assert_near(found, by_reference(model, X, "int8"), 5e-3)
    assert_same(run_shuffled(execution, X, 0)[0], found)


def convolutions(model):
    return [node.outputs[0].name for node in lower(prepare(model)).graph if node.domain == DOMAIN]


def copies(plan):
    return [step.name for step in plan.steps if step.op == "Concat"]


@pytest.mark.parametrize(("scales", "count"), [((0.01, 0.01), 5), ((0.01, 0.02), 6)])
def test_convolutions_of_floats_that_write_fp8_of_two_scales_stay_apart(scales, count):
    net = Net(channels=16, opset=19)
    first = net.conv("data", "first", 16)
    parts = [net.conv(first, name, 16, kernel=1) for name in ("a", "b")]
    last = net.conv(net.add("Add", [net.conv(part, f"{part}2", 16) for part in parts], "sum"), "last", leaky=False)
    model = prepare(net.model(last))
    table = {info.name: 0.02 for info in model.graph.value_info} | dict(zip(parts, scales, strict=True))
    table["data"] = 0.02
    quantized = prepare(quantize(model, CalibrationTable(table), precision="fp8", exclude=["first", "a", "b"]))
    found, execution = run_on_host(quantized, WIDE)
    assert sum(step.kind == "conv" for step in execution.plan.steps) == count
    assert_near(found, by_reference(quantized, WIDE, "fp8"), 2e-2)


@TYPES
@pytest.mark.parametrize(
    ("make", "names", "begins", "storage", "pitch"),
    [
        pytest.param(
            inception, ["reduce3_leaky.fused", "three_leaky", "five_leaky", "last_leaky"],
            {"reduce3_leaky": 0, "reduce5_leaky": 8, "one_leaky": 24, "joined": 24, "three_leaky": 40}, "joined.wide", 72,
            id="those that it begins with come last",
        ),
        pytest.param(
            partial, ["short_leaky.fused", "deep_leaky", "last_leaky"],
            {"joined": 0, "short_leaky": 24, "reduce_leaky": 40}, "joined.wide", 48, id="those that it ends with come first",
        ),
        pytest.param(
            stacked, ["two_leaky.fused", "three_leaky", "four_leaky", "last_leaky"], {"joined": 0}, "joined", 40,
            id="those of which it has all need no wider memory",
        ),
    ],
)  # fmt: skip
def test_fused_convolutions_lie_in_the_concats_memory(make, names, begins, storage, pitch, float_type):
    plan = assert_right(make(), float_type)
    assert convolutions(make()) == names
    assert not copies(plan)
    size = plan.tensors["joined"].format.dtype.itemsize
    assert {name: plan.tensors[name].offset // size for name in begins} == begins
    assert {plan.tensors[name].storage for name in (*begins, names[0])} == {storage}
    assert {plan.tensors[name].format.pitch for name in begins} == {pitch}


def test_a_concat_that_is_the_output_lies_over_fused_convolutions_too():
    net = Net(channels=8)
    deep = net.conv(net.conv("data", "reduce", 8, kernel=1), "deep", 8, kernel=3)
    parts = [net.conv("data", "short", 8, kernel=1), deep]
    plan = assert_right(net.model(net.add("Concat", parts, "joined", 16, axis=1)))
    assert plan.tensors["joined"].storage == "joined.wide"
    assert not copies(plan)


def test_a_concat_that_a_plugin_reads_keeps_no_gaps():
    net = Net(channels=8)
    deep = net.conv(net.conv("data", "reduce", 8, kernel=1), "deep", 8)
    whole = net.add("Concat", [net.conv("data", "short", 8, kernel=1), deep], "joined", 16, axis=1)
    moved = net.plugin(Reorg(stride=2), whole, "moved")
    net.channels[moved] = 64
    plan = assert_right(net.model(net.conv(moved, "last", 8)))
    assert plan.tensors["joined"].format.dense
    assert copies(plan) == ["joined.0"]
    assert [step.inputs for step in plan.steps if step.kind == "plugin"] == [("joined",)]


@TYPES
@pytest.mark.parametrize("make", [inception, partial, stacked])
def test_without_concat_all_parts_are_copied(make, float_type):
    parts, model = next(len(node.input) for node in make().graph.node if node.op_type == "Concat"), prepare(make())
    assert len(copies(assert_right(make(), float_type, disable=("concat",)))) == parts
    full, less = (run_on_host(model, X, float_type, disable=disable)[0] for disable in ((), ("concat",)))
    assert_same(less, full)


def test_a_convolution_in_the_middle_of_a_concat_writes_there_by_itself():
    net = Net(channels=8)
    reduced = [net.conv("data", f"reduce{side}", 8, kernel=1) for side in (3, 5)]
    deep = [net.conv(x, f"deep{side}", 8, kernel=side) for x, side in zip(reduced, (3, 5), strict=True)]
    model = joined(net, [deep[0], net.conv("data", "middle", 16, kernel=1), deep[1]], 32)
    assert {"reduce3_leaky.fused", "middle_leaky"} < set(convolutions(model))
    assert not copies(assert_right(model))


def test_a_concat_that_would_begin_within_16_bytes_keeps_its_convolutions_apart():
    net = Net(channels=8)
    deep = net.conv(net.conv("data", "reduce", 8, kernel=1), "deep", 12, kernel=3)
    model = joined(net, [deep, net.conv("data", "short", 16, kernel=1)], 28)
    assert convolutions(model)[:2] == ["reduce_leaky", "deep_leaky"]
    assert_right(model, DType.FLOAT16)


@pytest.mark.parametrize("last", [4, 12])
def test_channels_that_do_not_fill_16_bytes_are_not_fused(last):
    assert convolutions(partial(last))[0] == "reduce_leaky"
    assert_right(partial(last), DType.FLOAT16)


def test_convolutions_that_differ_in_form_are_not_fused():
    net = Net(channels=8)
    a, b = net.conv("data", "a", 8, kernel=1), net.conv("data", "b", 8, kernel=1, leaky=False)
    model = net.model(net.add("Concat", [a, b], "joined", 16, axis=1))
    assert convolutions(model) == ["a_leaky", "b"]
    assert_right(model)


def test_what_plugins_and_outputs_want_without_gaps_is_not_fused():
    net = Net(channels=8)
    names = [net.conv("data", f"c{index}", 8, kernel=1) for index in range(4)]
    swapped = net.plugin(Swap(), names[0], "swapped")
    last = net.conv(net.add("Concat", [swapped, *names[2:]], "joined", 24, axis=1), "last", 8)
    assert convolutions(net.model(names[1], last))[:3] == ["c0_leaky", "c1_leaky", "c2_leaky.fused"]
    assert_right(net.model(names[1], last))


def test_a_pool_behind_one_of_them_goes_into_it():
    net = Net(channels=8)
    names = [net.conv("data", f"c{index}", 8, kernel=1) for index in range(3)]
    pool = net.add("MaxPool", [names[0]], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    model = net.model(net.conv(pool, "small"), net.conv(names[1], "a"), net.conv(names[2], "b"))
    assert convolutions(model)[:2] == ["pooled", "c1_leaky.fused"]
    assert_right(model)


@TYPES
def test_a_split_of_the_model_shares_memory_with_a_concat_too(float_type):
    net = Net(channels=8)
    whole = net.conv("data", "whole", 32, kernel=1)
    sizes = net.constant("sizes", np.array([16, 8, 8], np.int64))
    split = net.add("Split", [whole, sizes], "kept", 16, axis=1)
    net.nodes[-1].output.extend(["second", "third"])
    net.channels |= {"second": 8, "third": 8}
    deep = net.conv(net.conv("third", "deep", 8), "deeper", 8)
    plan = assert_right(joined(net, ["second", "third", "deep_leaky", deep], 32), float_type)
    assert split == "kept"
    assert not copies(plan)
    assert plan.tensors["whole_leaky"].storage == "joined.wide"
    assert plan.tensors["joined"].format.pitch == 48


@TYPES
def test_a_concat_of_a_concat_is_one_piece_of_memory(float_type):
    plan = assert_right(dense(), float_type)
    assert not copies(plan)
    names = ["first_leaky", "new0_leaky", "new1_leaky", "new2_leaky", "joined0", "joined1"]
    assert {plan.tensors[name].storage for name in names} == {"joined2"}
    size = plan.tensors["joined2"].format.dtype.itemsize
    assert [plan.tensors[name].offset // size for name in names] == [8, 24, 0, 32, 8, 0]


@TYPES
def test_what_runs_array_by_array_writes_into_the_concat_too(float_type):
    net = Net(channels=8)
    negated = net.add("Neg", [net.conv("data", "a", 8)], "negated")
    plan = assert_right(joined(net, [negated, net.conv("data", "b", 8)], 16), float_type)
    assert not copies(plan)


@TYPES
def test_an_output_of_which_parts_are_read_keeps_its_layout(float_type):
    net = Net(channels=8)
    whole = net.conv("data", "whole", 16, kernel=1)
    net.add("Split", [whole, net.constant("sizes", np.array([8, 8], np.int64))], "first", 8, axis=1)
    net.nodes[-1].output.append("second")
    net.channels["second"] = 8
    assert_right(net.model(whole, net.conv("first", "a"), net.conv("second", "b")), float_type)


@given(networks(), st.sampled_from([DType.FLOAT32, DType.FLOAT16]), st.sampled_from([(), ("reuse",), ("outputs",)]))
def test_any_network_of_splits_and_concats_is_right(model, float_type, disable):
    assert_right(model, float_type, disable)


def quantized(model):
    prepared = prepare(model)
    table = calibrate(prepared, MinMaxCalibrator([X]), engine="reference", progress=False)
    return prepare(quantize(prepared, table))


@pytest.mark.parametrize("make", [inception, partial, stacked, dense])
def test_codes_are_the_reference_engines(make):
    assert_codes(quantized(make()))


@given(networks())
def test_any_network_of_splits_and_concats_is_right_in_int8(model):
    assert_codes(quantized(model))


def siblings(op="LeakyRelu", constants=(), attributes=None):
    """Two 1x1 convolutions of one tensor with an activation, each before a convolution of its own."""
    net = Net(channels=16, opset=20)
    net.conv("data", "first", 16)
    parts = []
    for name in "ab":
        part = net.conv("first_leaky", name, 16, kernel=1, leaky=False)
        parts.append(net.conv(write(net, part, f"{name}_act", op, constants, attributes or {}), f"{name}_next", 16))
    return net.model(net.conv(net.add("Concat", parts, "joined", 32, axis=1), "last", 8))


def in_int8(model, scales):
    """A model in codes, some of whose tensors have other scales than the calibration's."""
    prepared = prepare(model)
    table = calibrate(prepared, MinMaxCalibrator([WIDE]), engine="reference", progress=False)
    return prepare(quantize(prepared, CalibrationTable({name: table[name] * scales.get(name, 1) for name in table})))


def assert_same_apart(model, convolutions):
    """So many convolutions, and the numbers of a network whose siblings stay apart."""
    assert len([node for node in lower(model).graph if node.op_type == "Conv"]) == convolutions
    found, wanted = (run_on_host(model, WIDE, disable=disable)[0] for disable in ((), ("horizontal-fusion",)))
    for name, array in wanted.items():
        assert np.abs(found[name] - array).max() <= 1e-5 * np.abs(array).max()


@pytest.mark.parametrize("times", [1, 0.3, 4])
def test_parts_that_write_codes_of_scales_of_their_own_are_one_convolution(times):
    assert_same_apart(in_int8(siblings(), {"b_act": times}), 5)


@pytest.mark.parametrize(("kind", "op", "constants", "attributes"), {row[0]: row for row in WRITTEN}.values())
def test_parts_whose_activation_has_a_bend_elsewhere_than_at_0_need_one_scale(kind, op, constants, attributes):
    model, names = siblings(op, constants, attributes), "ab" if op == "Identity" else ("a_act", "b_act")
    (conv,) = (node for node in lower(prepare(model)).graph if node.outputs[0].name == f"{names[0]}.fused")
    values, bounds = np.linspace(-4, 4, 33)[:, None, None], conv.attributes.get_floats("bounds")
    once, thrice = (activated(factor * values, kind, bounds, SLOPES[:1]) for factor in (1, 3))
    assert_same_apart(in_int8(model, {names[1]: 1.5}), 5 if np.allclose(3 * once, thrice) else 6)
