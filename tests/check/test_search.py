"""What a check tries: sizes around the given ones, types, values of ranges and arrays, and what it compares results by."""

import itertools
import math

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import large, search
from pytrtplugins.check.cases import Case, input_scales, random_array, shrink
from pytrtplugins.check.compare import difference, differences
from pytrtplugins.check.formats import MOST, accepted_cases, cases_in_other_types, other_formats
from pytrtplugins.check.samples import Samples, input_names, own_inputs
from pytrtplugins.check.search import Trial, cases_around, input_dtypes, make_plugin, variants
from pytrtplugins.check.shared_dims import inputs_that_share
from pytrtplugins.errors import DimsError, FieldError, UsageError
from pytrtplugins.tensor import PLUGIN_DTYPES, DType

F = DType.FLOAT32


@ptp.plugin(namespace="tests.search")
class Add(ptp.Plugin):
    def output_dims(self, x, y):
        if x != y:
            raise DimsError("alike")
        return x

    def compute(self, x, y):
        return x + y


@ptp.plugin(namespace="tests.search")
class Sum(ptp.Plugin):
    """Any number of inputs."""

    def output_dims(self, *inputs):
        if len(set(inputs)) > 1:
            raise DimsError("alike")
        return inputs[0]

    def compute(self, *inputs):
        return np.sum(inputs, axis=0, dtype=inputs[0].dtype)


class Recorded(Trial):
    def __init__(self):
        self.noted = []

    def note(self, case):
        self.noted.append(case.dims)


def test_sizes_around_are_one_more_twice_and_one_less_of_the_batch_and_of_equal_sizes():
    found = list(search._sizes_around(((2, 3), (3,))))
    assert found == [
        *(((3, 3), (4,)), ((4, 3), (6,)), ((1, 3), (2,))),  # the first axis of all
        *(((3, 3), (3,)), ((4, 3), (3,)), ((1, 3), (3,))),  # 2
        *(((2, 4), (4,)), ((2, 6), (6,)), ((2, 2), (2,))),  # 3
    ]
    assert list(search._sizes_around(((1,),))) == [((2,),)]
    assert list(search._sizes_around(((20_000,),))) == [((19_999,),)]
    assert list(search._one_axis_longer(((2, 3), (4,)))) == [((3, 3), (4,)), ((2, 4), (4,)), ((2, 3), (5,))]


def test_up_to_six_cases_around_are_taken_and_each_is_told_before_it_runs():
    trial = Recorded()
    cases, fault = cases_around(Add(), ((2, 3, 5),) * 2, 7, trial)
    assert ([case.dims[0] for case in cases], fault) == (
        [(2, 3, 5), (3, 3, 5), (4, 3, 5), (1, 3, 5), (2, 4, 5), (2, 6, 5), (2, 2, 5)],
        "",
    )
    assert [case.seed for case in cases] == [7, 8, 9, 10, 11, 12, 13]
    assert set(trial.noted) >= {case.dims for case in cases}


def test_dims_that_compute_alone_refuses_are_the_fault():
    @ptp.plugin(namespace="tests.search")
    class Odd(Add):
        def compute(self, x, y):
            if x.shape[0] % 2 == 0:
                raise ValueError("even")
            return x + y

    cases, fault = cases_around(Odd(), ((3, 2),) * 2, 0, Trial())
    assert [case.dims[0] for case in cases] == [(3, 2), (3, 3), (3, 4), (3, 1)]
    assert fault == "output_dims accepts x [4, 2], y [4, 2], compute does not (ValueError: even)"


def test_sizes_that_a_shape_rule_names_are_tried():
    def rule(name):
        @ptp.plugin(namespace="tests.search", name=f"Names{name}")
        class Names(ptp.Plugin):
            def output_dims(self, x):
                if x[1] != 75:
                    raise DimsError("channels", **{name: 75})
                return x

            def compute(self, x):
                return x

        return search._sizes_in_errors(Names(), 4)

    assert (rule("expected"), rule("by"), rule("other")) == ([75], [75, 150, 225], [])


def test_types_are_float32_or_the_first_that_are_taken_and_own_arrays_keep_theirs():
    @ptp.plugin(namespace="tests.search")
    class Whole(Add):
        def supports_format(self, position, descs):
            return descs[position].dtype in (DType.INT32, DType.INT8)

    assert input_dtypes(Add(), ((2,), (2,))) == (F, F)
    kinds = [dtype for dtype in PLUGIN_DTYPES if dtype in (DType.INT32, DType.INT8)]
    assert input_dtypes(Whole(), ((2,), (2,))) == (kinds[0],) * 2
    own = own_inputs(Whole(), {"y": np.zeros(2, np.int8)})
    assert input_dtypes(Whole(), ((2,), (2,)), own)[1] == DType.INT8


def test_fields_without_defaults_get_small_values_and_others_vary():
    @ptp.plugin(namespace="tests.search")
    class Fields(Add):
        a: int
        b: bool = False
        c: int = 1

        def validate(self):
            if self.a < 2:
                raise FieldError("a is at least 2", name="a")

    made = make_plugin(Fields)
    assert made.a >= 2
    others = variants(made, np.random.default_rng(0), 3)
    assert others[0] is made
    assert len(others) == len({repr(plugin) for plugin in others}) == 4
    assert variants(Add(), np.random.default_rng(0), 3) == [Add()]


@pytest.mark.parametrize(
    ("low", "high", "dtype", "drawn"),
    [(2, 4, DType.INT64, {2, 3, 4}), (-1.5, 1.5, DType.INT32, {-1, 0, 1}), (-5, 2, DType.UINT8, {0, 1, 2}),
     (126, 999, DType.INT8, {126, 127}), (0, 1, DType.BOOL, {False, True}), (3, 3, DType.INT64, {3})],
)  # fmt: skip
def test_a_range_gives_all_whole_numbers_of_its_type_from_its_first_to_its_last(low, high, dtype, drawn):
    assert set(Samples(low=low, high=high).draw((99,), dtype, (0,), other=False).tolist()) == drawn


def test_a_range_of_floats_is_uniform_and_one_without_numbers_is_refused():
    values = Samples(low=-2.0, high=6.0).draw((4000,), F, (0,), other=False)
    assert values.dtype == np.float32
    assert (-2 <= values.min() < -1.9, 5.9 < values.max() <= 6, abs(values.mean() - 2) < 0.2) == (True, True, True)
    with pytest.raises(UsageError, match=r"no int32 lies between 0\.2 and 0\.8"):
        Samples(low=0.2, high=0.8).draw((1,), DType.INT32, (0,), other=False)
    kinds = [Samples(low=low, high=high).dtype for low, high in ((0, 1), (0.0, 1), (0, 1.0))]
    assert kinds == [DType.INT64, F, F]


@pytest.mark.parametrize(
    ("dims", "cut"), [((2, 3), True), ((4, 3), True), ((1, 1), True), ((5, 3), False), ((4, 4), False), ((12,), False)]
)
def test_own_arrays_are_cut_to_dims_that_they_have_and_drawn_from_else(dims, cut):
    array = np.arange(12).reshape(4, 3) * 10
    samples = Samples(array)
    found = samples.draw(dims, DType.INT64, (0,), other=False)
    assert found.shape == dims
    assert np.array_equal(found, array[tuple(map(slice, dims))] if array.ndim == len(dims) else None) == cut
    assert set(found.flat) <= set(array.flat)
    assert not np.array_equal(samples.draw((4, 3), DType.INT64, (0,), other=True), array)


def test_inputs_are_named_by_compute_or_numbered():
    assert input_names(Add()) == ["x", "y"]
    assert input_names(Sum()) == [f"x{index}" for index in range(64)]
    assert [sample and (sample.low, sample.high) for sample in own_inputs(Add(), {"y": (0, 1)})] == [None, (0, 1)]
    assert own_inputs(Add(), None) == ()
    assert own_inputs(Add(), [np.zeros(2)])[0].array.dtype == np.float32


@pytest.mark.parametrize(
    "value", [(2, 1), (0, math.inf), (math.nan, 1), np.zeros(0, np.float32), np.array(["a"]), np.zeros(2, np.complex64)]
)
def test_what_is_no_range_or_array_is_refused(value):
    with pytest.raises(UsageError, match="inputs: x: expected "):
        own_inputs(Add(), {"x": value})


@pytest.mark.parametrize("dtype", PLUGIN_DTYPES)
def test_values_are_normal_numbers_or_small_integers_that_depend_on_the_seed(dtype):
    values, others = (random_array((4000,), dtype, seed) for seed in (0, 1))
    assert values.dtype == dtype.numpy
    assert values.tobytes() == random_array((4000,), dtype, 0).tobytes() != others.tobytes()
    if dtype is DType.BOOL:
        assert 0.4 < values.mean() < 0.6
    elif dtype in (F, DType.FLOAT16, DType.BFLOAT16):
        assert abs(values.astype(np.float64).std() - 1) < 0.1
    else:
        assert (values.min(), values.max()) == (0 if dtype is DType.UINT8 else -100, 100)


def test_inputs_of_a_case_differ_by_input_seed_and_turn():
    first, second = Case(Add(), ((3,), (3,)), (F, F)), Case(Add(), ((3,), (3,)), (F, F), 1)
    arrays = [*first.inputs(), *first.inputs(1), *second.inputs()]
    assert len({array.tobytes() for array in arrays}) == 6
    assert [array.tobytes() for array in first.inputs()] == [array.tobytes() for array in arrays[:2]]


def test_a_case_is_of_seed_0_linear_and_found_where_nothing_else_is_said():
    assert Case(Add(), ((3,), (3,)), (F, F)) == Case(Add(), ((3,), (3,)), (F, F), 0, (), (), "")
    assert (
        Case(Add(), ((3,), (3,)), (F, F)).inputs(0)[0].tobytes()
        == Case(Add(), ((3,), (3,)), (F, F)).inputs()[0].tobytes()
    )


def test_a_case_comes_back_from_its_json_and_says_what_it_is():
    @ptp.plugin(namespace="tests.search")
    class Scaled(Add):
        factor: int = 2

    base = Scaled()
    cases = [
        Case(base, ((2, 3), (2, 3)), (F, F), 5, (), ("linear", "nhwc", "linear"), "other format"),
        Case(Scaled(factor=3), ((2,), (2,)), (DType.INT8, DType.INT8)),
    ]
    for case in cases:
        assert Case.from_json(case.as_json(base), base) == case
    assert [case.as_json(base)[0] is None for case in cases] == [True, False]
    assert str(cases[1]).endswith("on int8[2], int8[2]")
    assert str(cases[0]).endswith("on float32[2, 3], float32[2, 3] (float32, float32 nhwc -> float32)")


@pytest.mark.parametrize(
    ("kind", "scales"), [("float", [None, None]), ("pass_through", [0.03, 0.03]), ("requantize", [0.03, 0.06])]
)
def test_codes_have_scales_where_the_plugin_is_told_them(kind, scales):
    plugin = ptp.plugin(namespace="tests.search", name=f"Codes{kind}")(type("Codes", (Add,), {"int8": kind}))()
    case = Case(plugin, ((3,), (3,)), (DType.INT8, DType.INT8))
    assert input_scales(case) == scales
    inputs, outputs = case.descs()
    assert ([desc.name for desc in inputs], [desc.name for desc in outputs]) == (["x0", "x1"], ["y0"])
    assert [desc.scale for desc in inputs] == scales
    if kind == "requantize":
        numbers = [array.astype(np.float32) * scale for array, scale in zip(case.inputs(), scales, strict=True)]
        largest = np.abs(numbers[0] + numbers[1]).max()
        assert outputs[0].scale == pytest.approx(largest / 160)
        assert case.in_float().dtypes == (F, F)
    else:
        assert outputs[0].scale == (0.03 if kind == "pass_through" else None)
        assert case.in_float() is case


@pytest.mark.parametrize(("most", "size"), [(0, 9), (1, 9), (2, 3), (80, 3)])
def test_a_failing_case_becomes_smaller_for_so_many_attempts(most, size):
    """It fails from 3 on: of 1, 2, 4, 8, 7 the third does, of 1, 2, 3 the third too."""
    tried = []

    def first_failing(cases):
        for case in cases:
            tried.append(case.dims[0][0])
            if case.dims[0][0] >= 3:
                return case, str(case.dims[0][0])
        return None

    case = Case(Sum(), ((9,),), (F,))
    found, detail = shrink(case, "9", first_failing, most)
    assert len(tried) <= most
    assert (found.dims[0][0], detail) == ((9, "9") if most < 3 else (size, str(size)))


TOLERANCE = {
    "float64": (1e-4, 1e-5),
    "float32": (1e-4, 1e-5),
    "float16": (1e-2, 1e-3),
    "bfloat16": (2e-2, 1e-2),
    "int32": (0, 0),
}


@pytest.mark.parametrize("kind", TOLERANCE)
def test_results_are_compared_by_the_tolerance_of_their_type(kind):
    dtype = DType.BFLOAT16.numpy if kind == "bfloat16" else np.dtype(kind)
    relative, absolute = TOLERANCE[kind]
    for value in (0, 4):
        room = absolute + relative * value
        for factor in (0.4, 3):
            actual = np.array([value + (factor * room or factor > 1)]).astype(dtype)
            assert bool(difference(actual, np.array([value], dtype))) == (factor > 1), (value, factor)


def test_the_five_worst_elements_are_named_the_worst_first():
    actual = np.array([1, 9, 3, np.nan, 5, 2, 0], np.float32)
    found = difference(actual, np.zeros(7, np.float32))
    assert found.startswith("6 of 7 elements differ; worst at [3]: nan, expected 0.0; [1]: 9.0, expected 0.0; [4]: 5.0")
    assert found.count("expected") == 5
    assert difference(actual, actual.copy()[::-1][::-1]) == ""
    assert difference(np.zeros(2), np.zeros((2, 1))) == "shape [2], expected [2, 1]"
    assert difference(np.zeros(2, np.int8), np.zeros(2, np.uint8)) == "element type int8, expected uint8"
    assert differences([actual], []) == "1 outputs, expected 0"


@ptp.plugin(namespace="tests.search")
class Any4(Add):
    """All types in both layouts, each tensor for itself."""

    def supports_format(self, position, descs):
        return descs[position].layout in ("linear", "nhwc")

    def output_dtypes(self, x, y):
        return x


def test_all_combinations_of_types_and_layouts_are_found_plain_ones_first():
    case = Case(Any4(), ((1, 2, 2, 2),) * 2, (F, F))
    found = accepted_cases(case)
    assert len(found) == len(PLUGIN_DTYPES) ** 2 * 2**3
    assert len({(each.dtypes, each.layouts) for each in found}) == len(found)
    kinds = [(len(set(each.dtypes)), each.layouts.count("nhwc")) for each in found]
    assert kinds == sorted(kinds)
    assert found[0].dtypes[0] in (F, DType.FLOAT16, DType.BFLOAT16)
    others = other_formats([case])
    assert [each.role for each in others] == ["other format"] * MOST + ["not run"] * (len(found) - 1 - MOST)
    assert len(cases_in_other_types(case)) == MOST
    assert all(not each.layouts and each.dtypes != case.dtypes for each in cases_in_other_types(case))


def test_inputs_that_are_not_described_yet_have_the_type_of_the_first():
    seen = []

    @ptp.plugin(namespace="tests.search")
    class Asked(Sum):
        def supports_format(self, position, descs):
            seen.append((position, [desc.dtype for desc in descs[:4]]))
            return descs[position].dtype in (F, DType.INT8)

    found = accepted_cases(Case(Asked(), ((2,),) * 4, (F,) * 4))
    assert len(found) == 2**4
    for position, kinds in seen[: len(PLUGIN_DTYPES) + 1]:
        assert len(kinds) == 4
        assert set(kinds[position + 1 :]) <= {kinds[0]}


def test_inputs_share_an_axis_if_they_can_get_another_size_together_only():
    for count in (1, 2, 6, 7, 8):
        case = Case(Sum(), ((2, 3),) * count, (F,) * count)
        assert inputs_that_share(case, 1) == tuple(range(count))


@pytest.mark.parametrize("most", [None, 100])
def test_large_cases_grow_along_each_axis(most):
    plugin = ptp.plugin(namespace="tests.search", name=f"Large{most}")(type("Large", (Sum,), {"max_elements": most}))()
    found = [each.dims[0] for each in large._large_cases(Case(plugin, ((2, 3),), (F,)))]
    factor = 2**31 // 6 + 2 if most is None else 100 // 6
    assert found == [(2 * factor, 3), (2, 3 * factor)]
    assert all((math.prod(dims) - 6 > 2**31) if most is None else math.prod(dims) <= 100 for dims in found)


def test_the_largest_tensor_grows_beyond_what_32_bits_count():
    class Wide(Sum):
        def output_dims(self, x, y):
            return *x, 10

        def compute(self, x, y):
            return np.repeat(x[..., None], 10, -1)

    case = Case(ptp.plugin(namespace="tests.search", name="Wide")(Wide)(), ((4,), (2,)), (F, F))
    assert large._largest_count(case) == 40
    assert next(large._large_cases(case)).dims[0] == (4 * (2**31 // 40 + 2),)
    assert large._GUARD_BYTES >= 8 << 32, "an index of 32 bits that overflows, of elements of 8 bytes, stays within"


def test_candidates_are_small_and_alike_first():
    found = list(itertools.islice(search._candidates(Add(), 4, np.random.default_rng(0)), 300))
    assert all(x == y and len(x) == 4 and math.prod(x) <= 20_000 for x, y in found)
    assert {dims[0][0] for dims in found} == {1, 2, 3}
    assert {size for dims in found for size in dims[0][2:]} == {1, 2, 3, 4, 6, 8, 12}
    assert max(dims[0][1] for dims in found) == 32
    flat = list(itertools.islice(search._candidates(Add(), 2, np.random.default_rng(0)), 300))
    assert {size for dims in flat for size in dims[0]} == set(range(1, 33))
