"""Each rule looks at every image, every output, every input and every element: the defect may be at any one of them."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import enqueue, in_formats, rules, sharing
from pytrtplugins.check.cases import Case, float_outputs
from pytrtplugins.check.compare import difference, differences
from pytrtplugins.errors import DimsError, PluginError, SerializationError
from pytrtplugins.tensor import DType

DIMS = (3, 2, 2)
SIZE = 12
PLACES = {"first": 0, "middle": 5, "last": 11}
EVERYWHERE = list(itertools.product((0, 1), PLACES.values()))
at_every_place = pytest.mark.parametrize(("output", "place"), EVERYWHERE)


@ptp.plugin(namespace="rules_test")
class Both(ptp.Plugin):
    """Right: the larger and the smaller of two inputs, in any type."""

    int8 = "pass_through"

    def output_dims(self, x, y):
        return x, x

    def compute(self, x, y):
        return np.maximum(x, y), np.minimum(x, y)


@ptp.plugin(namespace="rules_test")
class Right(Both):
    def enqueue(self, inputs, outputs, workspace, stream):
        for output, result in zip(outputs, Both.compute(self, *inputs), strict=True):
            output[...] = result


@ptp.plugin(namespace="rules_test")
class Requantizing(Right):
    """Its inputs and outputs are codes with scales of their own."""

    int8 = "requantize"


NUMBERS = itertools.count()


def broken(**methods):
    """A plugin with other methods."""
    return ptp.plugin(namespace="rules_test", name=f"Broken{next(NUMBERS)}")(type("Broken", (Both,), methods))()


def case(plugin, dtype=DType.FLOAT32):
    return Case(plugin, (DIMS, DIMS), (dtype, dtype))


def spoiled(x, y, output, change, when=True):
    """The outputs, one of which is changed."""
    results = [array.copy() for array in Both().compute(x, y)]
    if when:
        results[output] = change(results[output])
    return tuple(results)


def plus(place, number=1):
    def change(array):
        array.flat[place] += array.dtype.type(number)
        return array

    return change


def index(place):
    return [int(each) for each in np.unravel_index(place, DIMS)]


RULES = [
    *(
        rules.dims,
        rules.dtypes,
        rules.half_precision,
        rules.formats,
        rules.determinism,
        rules.symbolic_dims,
        rules.batch,
    ),
    *(
        rules.not_contiguous,
        rules.inputs_unchanged,
        rules.independent_results,
        rules.round_trip,
        rules.damage,
        rules.clones,
    ),
    *(rules.int8_pass_through, enqueue.coverage, enqueue.same_as_compute, enqueue.inputs_unchanged),
    *(sharing.repeated_runs, sharing.kept_inputs, sharing.changing_dims, sharing.empty_batch, sharing.one_array_twice),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_what_is_right_keeps_the_rule(rule):
    assert rule(case(Right())) == ""


@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize(
    ("rule", "change", "text"),
    [
        (rules.dims, lambda array: array[None], r"compute gives .*\(1, 3, 2, 2\)"),
        (rules.dtypes, lambda array: array.astype(np.float64), "for float32 compute gives .*float64"),
    ],
)
def test_dims_and_types_of_each_output_are_compared(rule, change, text, output):
    assert re.match(text, rule(case(broken(compute=lambda self, x, y: spoiled(x, y, output, change)))))


@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize("image", [0, 1, 2])
@pytest.mark.parametrize("source", [0, 1])
def test_each_image_of_each_output_and_input_is_kept_apart(image, output, source):
    """An image gets the mean of the others of one input."""

    def compute(self, *inputs):
        others = np.delete(inputs[source], image, 0).mean(0)

        def change(array):
            array[image] += others
            return array

        return spoiled(inputs[0], inputs[1], output, change)

    found = rules.batch(case(broken(compute=compute)))
    assert found.startswith(f"image {image} of 3 changes when only the other images change: output {output}: ")


@at_every_place
def test_each_element_is_the_same_in_a_second_run(output, place):
    count = itertools.count()
    plugin = broken(compute=lambda self, x, y: spoiled(x, y, output, plus(place, next(count))))
    assert f"output {output}: 1 of {SIZE} elements differ; worst at {index(place)}" in rules.determinism(case(plugin))


@at_every_place
def test_each_element_is_near_float32_in_half_precision(output, place):
    plugin = broken(compute=lambda self, x, y: spoiled(x, y, output, plus(place), x.dtype == np.float16))
    assert re.search(
        rf"output {output} is off by more than 1%.*{re.escape(str(index(place)))}", rules.half_precision(case(plugin))
    )


@at_every_place
@pytest.mark.parametrize("name", ["reversed", "Fortran-ordered", "strided"])
def test_each_element_is_the_same_for_inputs_in_another_order(output, place, name):
    def other_order(x):
        return {"reversed": min(x.strides) < 0, "Fortran-ordered": x.flags.f_contiguous, "strided": x.strides[-1] == 8}[
            name
        ]

    plugin = broken(compute=lambda self, x, y: spoiled(x, y, output, plus(place), other_order(x)))
    found = rules.not_contiguous(case(plugin))
    assert found.startswith(f"for {name} inputs: output {output}: 1 of {SIZE} elements differ; worst at {index(place)}")


@at_every_place
@pytest.mark.parametrize("form", ["compute", "enqueue"])
def test_each_element_of_each_input_stays(output, place, form):
    """``output`` is the number of the input here."""

    def compute(self, *inputs):
        plus(place)(inputs[output])
        return Both.compute(self, *inputs)

    def run(self, inputs, outputs, workspace, stream):
        Right.enqueue(self, inputs, outputs, workspace, stream)
        plus(place)(inputs[output])

    plugin = broken(compute=compute) if form == "compute" else broken(enqueue=run)
    rule = rules.inputs_unchanged if form == "compute" else enqueue.inputs_unchanged
    assert f"output {output}: 1 of {SIZE} elements differ; worst at {index(place)}" in rule(case(plugin))


@pytest.mark.parametrize("output", [0, 1])
def test_each_output_has_memory_of_its_own_in_each_call(output):
    buffer = np.empty(DIMS, np.float32)

    def change(array):
        buffer[...] = array
        return buffer

    plugin = broken(compute=lambda self, x, y: spoiled(x, y, output, change))
    assert rules.independent_results(case(plugin)).startswith("compute gives the same array every time")
    plugin = broken(compute=lambda self, x, y: spoiled(x, y, output, lambda array: (x, y)[output]))
    assert f"output {output} of compute is input {output} itself" in rules.independent_results(case(plugin))


@at_every_place
def test_each_code_passes_through(output, place):
    plugin = broken(compute=lambda self, x, y: spoiled(x, y, output, plus(place), x.dtype == np.int8))
    found = rules.int8_pass_through(Case(plugin, (DIMS, DIMS), (DType.FLOAT32,) * 2))
    assert re.match(rf"output {output}, int8: .*{re.escape(str(index(place)))}", found)


@at_every_place
def test_each_code_with_a_scale_of_its_own_is_within_one_step(output, place):
    codes = case(Requantizing(), DType.INT8)
    scales = [desc.scale for desc in codes.descs()[1]]
    right = [
        np.clip(np.rint(array / np.float32(scale)), -128, 127).astype(np.int8)
        for array, scale in zip(float_outputs(codes), scales, strict=True)
    ]
    for steps in (-2, -1, 0, 1, 2):
        found, other = [array.copy() for array in right], int(right[output].flat[place]) + steps
        if abs(other) < 128:
            found[output].flat[place] = other
            wrong = enqueue.difference_from_compute(codes, found)
            assert bool(wrong) == (abs(steps) == 2)
            assert not wrong or (
                f"output {output}, for scales 0.03, 0.06" in wrong and f"worst at {index(place)}" in wrong
            )


@at_every_place
@pytest.mark.parametrize("fault", ["left", "wrong", "kept"])
def test_each_element_that_enqueue_writes_is_compared(output, place, fault):
    """Left as it was; wrong; or wrong from the second run on."""
    runs = itertools.count()

    def run(self, inputs, outputs, workspace, stream):
        before, number = outputs[output].flat[place], next(runs)
        Right.enqueue(self, inputs, outputs, workspace, stream)
        if fault == "left":
            outputs[output].flat[place] = before
        elif fault == "wrong" or number >= 2:
            outputs[output].flat[place] += 1

    rule = {"left": enqueue.coverage, "wrong": enqueue.same_as_compute, "kept": sharing.repeated_runs}[fault]
    found = rule(case(broken(enqueue=run)))
    place_text = re.escape(str(index(place)))
    assert re.search(rf"output {output}: 1 of {SIZE}.*(the first|worst) at {place_text}", found)


@pytest.mark.parametrize("kind", ["changed", "cut"])
def test_each_byte_that_is_damaged_or_missing_is_noticed(kind):
    right = Both().serialize()
    for place in range(len(right)):

        @classmethod
        def deserialize(cls, data, place=place):
            forms = {"cut": data == right[:place], "changed": len(data) == len(right) and data[place] != right[place]}
            if data != right and not forms[kind]:
                raise SerializationError("damaged")
            return cls()

        text = f"data with byte {place} changed is accepted" if kind == "changed" else f"data cut to {place} of "
        plugin = broken(deserialize=deserialize, serialize=lambda self: right)
        assert rules.damage(case(plugin)).startswith(text)


@pytest.mark.parametrize("names", [("a",), ("b",), ("c",)])
def test_each_field_is_kept_by_bytes_and_clones(names):
    @ptp.plugin(namespace="rules_test", name=f"Forgets{names[0]}")
    class Forgets(Both):
        a: int = 1
        b: float = 2.0
        c: bool = True

        def clone(self):
            return type(self)(**{name: value for name, value in self.fields().items() if name not in names})

        def serialize(self):
            return Both.serialize(self.clone())

    plugin = Forgets(a=5, b=7.0, c=False)
    assert rules.round_trip(case(plugin)).startswith("deserialize(serialize()) gives ")
    assert rules.clones(case(plugin)).startswith("clone gives ")


def test_what_is_as_far_off_as_the_tolerance_is_no_difference():
    wanted = np.array([1, -2, 4], np.float32)
    for place, sign in itertools.product(range(3), (1, -1)):
        array = wanted.astype(np.float64)
        array[place] += sign * (0.5 + 0.25 * abs(array[place]))
        assert difference(array, wanted.astype(np.float64), rtol=0.25, atol=0.5) == ""
        array[place] += sign * 1e-12
        assert f"1 of 3 elements differ; worst at [{place}]" in difference(
            array, wanted.astype(np.float64), rtol=0.25, atol=0.5
        )
    codes = np.array([0, 1, 127], np.int8)
    assert difference(codes, codes) == ""
    assert "1 of 3" in difference(codes - np.int8([0, 0, 1]), codes)
    for output in (0, 1, 2):
        others = [wanted + (number == output) for number in range(3)]
        assert differences(others, [wanted] * 3).startswith(f"output {output}: 3 of 3")


@pytest.mark.parametrize(("rank", "refused"), [(3, False), (4, True)])
def test_a_symbolic_batch_must_work_for_images_alone(rank, refused):
    def rule(self, x, y):
        if not isinstance(x[0], int):
            raise DimsError("numbers alone")
        return x, x

    found = rules.symbolic_dims(Case(broken(output_dims=rule), ((2,) * rank,) * 2, (DType.FLOAT32,) * 2))
    expected = "output_dims refuses a symbolic batch, [N, 2, 2, 2], [N, 2, 2, 2]: DimsError: numbers alone"
    assert found == (expected if refused else "")


def test_dims_by_way_of_a_symbolic_axis_are_those_of_its_value():
    def rule(self, x, y):
        return x, x if isinstance(x[-1], int) else (*x[:-1], x[-1] + 1)

    found = rules.symbolic_dims(case(broken(output_dims=rule)))
    assert found.startswith("output_dims gives [(3, 2, 2), (3, 2, 3)] by way of [3, 2, N], ")
    assert found.endswith(", [(3, 2, 2), (3, 2, 2)] directly")


@pytest.mark.parametrize(("dims", "noticed"), [((2, 2), True), ((1, 2), False), ((2,), False), ((3, 1), True)])
def test_a_batch_has_two_images_and_another_axis(dims, noticed):
    def compute(self, x, y):
        return x + x.sum(0, keepdims=True), y.copy()

    plugin = broken(compute=compute)
    assert bool(rules.batch(Case(plugin, (dims, dims), (DType.FLOAT32,) * 2))) == noticed


def test_a_plugin_of_which_an_output_has_no_batch_may_mix_images():
    plugin = broken(output_dims=lambda self, x, y: (x, x[1:]), compute=lambda self, x, y: (x + y, x.sum(0)))
    assert rules.batch(case(plugin)) == ""


def test_bytes_give_the_same_plugin_the_same_bytes_and_the_same_results():
    count = itertools.count()
    plugin = broken(
        serialize=lambda self: Both().serialize() + bytes([next(count)]),
        deserialize=classmethod(lambda cls, data: cls()),
    )
    assert rules.round_trip(case(plugin)) == "serializing twice gives other bytes"

    class Counted(Both):
        def compute(self, x, y):
            return tuple(result + getattr(self, "off", 0) for result in Both.compute(self, x, y))

        @classmethod
        def deserialize(cls, data):
            made = super().deserialize(data)
            made.off = 1
            return made

    plugin = ptp.plugin(namespace="rules_test", name="CountedBytes")(Counted)()
    assert rules.round_trip(case(plugin)).startswith(
        "the deserialized plugin computes something else: output 0: 12 of 12"
    )


@pytest.mark.parametrize("moment", ["", " after initialize"])
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("itself", "clone{} gives the plugin itself"),
        ("shared", "clone{} shares the attribute 'table'"),
        ("wrong", "a clone{} computes something else: output 0"),
    ],
)
def test_clones_are_others_that_share_nothing_before_and_after_initialize(moment, fault, text):
    class Cloned(Both):
        def initialize(self):
            self.started = True

        def clone(self):
            is_wrong = getattr(self, "started", False) == bool(moment) and getattr(self, "first", False)
            if is_wrong and fault == "itself":
                return self
            twin = super().clone()
            twin.first = not hasattr(self, "first")
            if is_wrong and fault == "shared":
                self.table = twin.table = [1]
            twin.off = int(is_wrong and fault == "wrong")
            return twin

        def compute(self, x, y):
            return tuple(result + getattr(self, "off", 0) for result in Both.compute(self, x, y))

    plugin = ptp.plugin(namespace="rules_test", name=f"Cloned{fault}{len(moment)}")(Cloned)()
    assert rules.clones(case(plugin)).startswith(text.format(moment))


def test_supports_format_says_true_or_false_and_takes_what_compute_takes():
    plugin = broken(supports_format=lambda self, position, descs: 1)
    found = rules.formats(case(plugin))
    assert re.fullmatch(r"supports_format gives \[1, 1, 1, 1\] for \(.*float32.*\): expected True or False", found)
    for place, text in (
        (0, "accepts no element type in linear layout"),
        (3, "output 1 is float32 by output_dtypes for float32, float32, which it refuses"),
    ):
        plugin = broken(supports_format=lambda self, position, descs, place=place: position != place)
        assert text in rules.formats(case(plugin))
        assert ("output" in rules.formats(case(plugin)).partition(": ")[2]) == (place == 3)

    def compute(self, x, y):
        if x.dtype == np.int8:
            raise TypeError("no codes")
        return Both.compute(self, x, y)

    assert (
        rules.formats(case(broken(compute=compute)))
        == "supports_format accepts int8, compute does not: TypeError: no codes"
    )


@pytest.mark.parametrize(("share", "noticed"), [(0.99, False), (1.01, True)])
@pytest.mark.parametrize(("dtype", "room"), [("float16", 0.01), ("bfloat16", 0.05)])
def test_half_precision_may_be_off_by_a_share_of_the_value_and_of_the_mean(dtype, room, share, noticed):
    expected = np.array([0, 2, 4], np.float32)
    for place in range(3):
        actual = expected.astype(np.float64)
        actual[place] += share * room * (expected[place] + 2)
        found = rules._error_text(actual, expected, dict(rules._HALF_NAMES)[dtype])
        assert bool(found) == noticed
        assert not noticed or found.startswith(f"[{place}]: ")
    assert rules._error_text(np.array([np.nan]), np.float32([1]), room)
    assert not rules._error_text(np.array([np.nan]), np.float32([np.nan]), room)
    assert not rules._error_text(np.zeros(0), np.zeros(0, np.float32), room)


def test_damage_that_ends_in_another_error_or_goes_by_is_told_with_its_form():
    right = Both().serialize()
    for form, name in (
        (right[:-1], f"cut to {len(right) - 1} of {len(right)} bytes"),
        (right + b"\0", "with a byte more"),
        (b"", f"cut to 0 of {len(right)} bytes"),
    ):

        @classmethod
        def deserialize(cls, data, form=form):
            if data == form:
                raise ValueError("odd")
            raise SerializationError("damaged")

        plugin = broken(deserialize=deserialize, serialize=lambda self: right)
        assert rules.damage(case(plugin)) == f"data {name} ends in ValueError: odd; expected SerializationError"


def kept_state(self, inputs, outputs, workspace, stream):
    """Wrong from the third run on."""
    Right.enqueue(self, inputs, outputs, workspace, stream)
    self.runs = getattr(self, "runs", 0) + 1
    outputs[1].flat[5] += self.runs > 2


def kept_dims(self, inputs, outputs, workspace, stream):
    """Only as many images as the first run had."""
    self.count = getattr(self, "count", len(inputs[0]))
    for output, result in zip(outputs, Both.compute(self, *inputs), strict=True):
        output[...] = 0
        output[: self.count] = result[: self.count]


def outside(self, inputs, outputs, workspace, stream):
    Right.enqueue(self, inputs, outputs, workspace, stream)
    if not len(inputs[0]):
        raise PluginError("out-of-bounds write", defect="out-of-bounds write")


@pytest.mark.parametrize(
    ("rule", "run", "text"),
    [
        (sharing.repeated_runs, kept_state, "state kept between runs: run 3 of a context"),
        (sharing.changing_dims, kept_dims, "state kept from other dims: a context that also ran float32[3, 2, 2]"),
        (sharing.empty_batch, outside, "out-of-bounds write"),
    ],
)
def test_rules_about_state_are_kept_in_every_format(rule, run, text):
    plugin = broken(enqueue=run)
    found = in_formats.in_formats(case(plugin))
    assert found == rule(case(plugin))
    assert found.startswith(text)
