"""Each rule looks at every image, every output, every input and every element: the defect may be at any one of them."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import enqueue, rules, sharing
from pytrtplugins.check.cases import Case, float_outputs
from pytrtplugins.check.compare import difference, differences
from pytrtplugins.errors import SerializationError
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
