"""Array fields of exported plugins: one library takes every size, in the types that Python takes, and refuses the rest."""

from __future__ import annotations

import itertools
import re

import numpy as np
import numpy.typing as npt
import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda import Constant
from pytrtplugins.errors import DimsError, ExportError, FieldError, SerializationError
from pytrtplugins.export._arrays import TracedArray
from pytrtplugins.export._explore import Returned, explore
from pytrtplugins.export._values import Expr, TracedInt
from pytrtplugins.export.trace import trace_plugin

from .arithmetic import QUESTIONS, Question
from .layers import Mix, Normalize, PRelu

MIXED = Mix(matrix=[[1, 2, 3], [0.5, -1, 0.1]], offsets=[0.1, -3], shifts=[5], twice=[False])


def array(*dims):
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("slope", [[0.25], [0.5, -1, 3], np.linspace(-2, 2, 70)])
def test_one_library_takes_every_size(export, slope, dtype):
    plugin = PRelu(slope=slope)
    for dims in ((2, plugin.slope.size), (1, plugin.slope.size, 3, 5)):
        x = array(*dims).astype(dtype)
        (found,) = export(PRelu).run(plugin, x)
        np.testing.assert_array_equal(found, plugin.compute(x))


@pytest.mark.parametrize(
    "plugin",
    [
        MIXED,
        Mix(matrix=[[1, -2]]),
        Mix(matrix=np.ones((3, 2)), offsets=[1, 2, 3], shifts=[1, 2, -9], twice=[True, False]),
    ],
    ids=repr,
)
def test_axes_other_types_and_elements(export, plugin):
    x = array(2, plugin.matrix.shape[1], 5)
    (found,) = export(Mix).run(plugin, x)
    np.testing.assert_allclose(found, plugin.compute(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize("channels", [1, 5, 200])
def test_what_is_made_of_arrays_is_numpys_bit_for_bit(export, channels, sign):
    mean, variance = array(channels), np.abs(array(2, channels)[1])
    plugin = Normalize(mean=mean, variance=variance, groups=[1, 2, 4], epsilon=0.1, sign=sign)
    x = array(2, channels, 3)
    (found,) = export(Normalize).run(plugin, x)
    np.testing.assert_array_equal(found, plugin.compute(x))


@pytest.mark.parametrize("plugin", [MIXED, PRelu(slope=[1, 2, 3])], ids=repr)
def test_bytes_are_pythons_and_damaged_ones_are_refused(export, plugin):
    data, exported = plugin.serialize(), export(type(plugin))
    assert exported.made(plugin).serialize() == data
    other = PRelu(slope=[4]) if isinstance(plugin, PRelu) else Mix(matrix=[[1, -2]])
    assert exported.made(other).deserialize(data).serialize() == data
    for damaged in (data[:-1], data[:40], data + b"\0", data[:-30] + b"\xff" * 4 + data[-26:], b""):
        with pytest.raises(SerializationError):
            exported.made(other).deserialize(damaged)


def test_a_clone_has_elements_of_its_own(export):
    plugin, x = PRelu(slope=[0.5, 2]), array(1, 2, 3)
    first, second = (export(PRelu).made(plugin) for _ in range(2))
    copies = [first.clone(), first, second]
    for made in copies:
        ins, outs = ([ptp.TensorDesc("", x.shape, "float32")] for _ in range(2))
        made.configure(ins, outs)
        made.initialize()
    for made in copies:
        y = np.zeros_like(x)
        made.enqueue([x], [y], ["linear"] * 2, 0, 0)
        np.testing.assert_array_equal(y, plugin.compute(x))
        made.terminate()


@pytest.mark.parametrize(
    "given",
    [
        np.array([1, -2]),
        np.float64([0.1, 1e-50]),
        np.float16([0.1, np.inf]),
        np.array([255], np.uint8),
        np.float32([np.nan]),
    ],
    ids=repr,
)
def test_numbers_are_converted_as_python_converts_them(export, given):
    assert export(PRelu).entry.make({"slope": given}).serialize() == PRelu(slope=given).serialize()


def test_every_float16_and_every_rounding_is_numpys(export):
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    assert export(PRelu).entry.make({"slope": every}).serialize() == PRelu(slope=every).serialize()
    steps = np.sort(np.abs(every)).astype(np.float64)
    between = np.concatenate([steps, (steps[1:] + steps[:-1]) / 2, steps * 1.0001, [65519.99, 1e-9, -(2.0**-25)]])
    between = np.concatenate([between[between < 65520], -steps])
    matrix = {"matrix": np.zeros((between.size, 1), np.float32), "shifts": np.array([0]), "twice": np.array([True])}
    made = export(Mix).entry.make({**matrix, "offsets": between})
    assert made.serialize() == Mix(**matrix, offsets=between).serialize()


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        (PRelu, {"slope": np.float64([1, 1e300])}),
        (PRelu, {"slope": np.array([True])}),
        (PRelu, {"slope": np.float32([[1]])}),
        (Mix, {"matrix": np.ones((1, 2)), "shifts": np.float32([1])}),
        (Mix, {"matrix": np.ones((1, 2)), "shifts": np.array([101])}),
        (Mix, {"matrix": np.ones((1, 2)), "offsets": np.array([70000])}),
        (Mix, {"matrix": np.ones((2, 2))}),
        (Mix, {"matrix": np.ones((1, 2)), "twice": np.array([1])}),
        (Normalize, {"mean": np.ones(2), "variance": np.float32([0.1, -0.1])}),
        (Normalize, {"mean": np.float32([1, np.inf]), "variance": np.ones(2)}),
        (Normalize, {"mean": np.float32([1, np.nan]), "variance": np.ones(2)}),
        (Normalize, {"mean": np.ones(3), "variance": np.ones(2)}),
        (Normalize, {"mean": np.ones((2, 1)), "variance": np.ones((2, 1))}),
        (Normalize, {"mean": np.ones(1), "variance": np.ones(1), "groups": np.uint8([1, 5])}),
        (Normalize, {"mean": np.ones(1), "variance": np.ones(1), "groups": np.uint8([3])}),
    ],
)
def test_what_python_refuses_is_refused_with_its_message(export, cls, values):
    with pytest.raises(FieldError) as python:
        cls(**values)
    defaults = {spec.name: spec.default for spec in cls.field_specs() if spec.name not in values}
    with pytest.raises(FieldError) as cpp:
        export(cls).entry.make({**defaults, **values})
    assert str(cpp.value) == re.sub(", from the argument .*", "", str(python.value))


@pytest.mark.parametrize(
    ("cls", "values", "reason"),
    [
        (PRelu, {}, "PRelu.slope: expected an array of float32 with at least one element, found none"),
        (PRelu, {"slope": np.zeros(0)}, "PRelu.slope: expected an array of float32 with at least one element, found none"),
        (Mix, {"matrix": np.float32([1, 2])}, "Mix.validate: not enough values to unpack (expected 2, got 1)"),
        (Mix, {"matrix": np.ones((1, 2)), "shifts": np.zeros(0, np.int64)},
         "Mix.shifts: expected at least 1 elements, found 0"),
    ],
)  # fmt: skip
def test_what_a_library_needs_is_named(export, cls, values, reason):
    with pytest.raises(FieldError) as caught:
        export(cls).entry.make(values)
    assert str(caught.value) == reason


def test_lengths_that_do_not_fit_the_input_are_refused_with_pythons_message(export):
    for plugin, dims in ((PRelu(slope=[1, 2]), (2, 3, 4)), (MIXED, (2, 2, 5)), (MIXED, (2, 3))):
        with pytest.raises(DimsError) as python:
            plugin.output_dims(dims)
        with pytest.raises(DimsError) as cpp:
            export(type(plugin)).made(plugin).output_dims([dims])
        if len(dims) == 3:
            assert str(cpp.value) == str(python.value)


# -- tracing -----------------------------------------------------------------------------------------------------------

SLOPE = TracedArray("PRelu", "slope", "float32")


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: np.sin(SLOPE), r"PRelu.slope: sin of float32 needs its values.*\nDo: .*Constant\(self.slope\).*--set slope=@FILE"),
        (lambda: SLOPE**0.5, "such arithmetic needs its values"),
        (lambda: 2.0 // SLOPE, "such arithmetic needs its values"),
        (lambda: SLOPE + SLOPE.astype(np.float64), "add of float32 and float64 needs its values"),
        (lambda: SLOPE.astype(np.float16) + 1, "add of float16 needs its values"),
        (lambda: SLOPE + SLOPE.reshape(1, -1), "arithmetic of several arrays behind a reshape needs its values"),
        (lambda: np.add.reduce(SLOPE), "a function of NumPy needs its values"),
        (lambda: np.float32([1]) * SLOPE, "an array or number of NumPy's among the operands needs its values"),
        (lambda: np.float64(1) * SLOPE, "an array or number of NumPy's among the operands needs its values"),
        (lambda: SLOPE * TracedInt(Expr("dim", (0, 1), "i")), r"arithmetic with inputs\[0\].shape\[1\] needs its values"),
        (lambda: np.asarray(SLOPE), "a function of NumPy needs its values"),
        (lambda: list(SLOPE), "a loop needs its values"),
        (lambda: bool(SLOPE), "a question needs its values"),
        (lambda: SLOPE.sum(), r"\.sum needs its values"),
        (lambda: (SLOPE * 2)[0], "an element of what was computed needs its values"),
        (lambda: SLOPE[1:], r"\[slice\(1, None, None\)\] needs its values"),
        (lambda: len(SLOPE), r"len\(self.slope\) counts.*\nDo: self.slope.shape\[0\]"),
        (lambda: SLOPE[0] * 2, r"arithmetic with slope.item\(0\), which NumPy rounds.*\nDo: write .item"),
        (lambda: float(SLOPE[0]), "Do: write .item"),
        (lambda: SLOPE.astype(np.int32), "PRelu.slope: float32 as int32 is not exported"),
        (lambda: SLOPE.astype(np.float64)[0], "an element of what was computed needs its values"),
        (lambda: SLOPE.reshape(2, -1, order="F"), "such a reshape needs its values"),
        (lambda: Constant(TracedArray("A", "b", "")).dtype, r"A.b may have any element type.*\nDo: b: npt.NDArray\[np.float32\]"),
    ],
)  # fmt: skip
def test_what_needs_the_values_is_refused_with_what_to_do(use, words):
    with pytest.raises(ExportError, match=re.compile(words, re.DOTALL)):
        explore(use, "f")


@pytest.mark.parametrize("index", [0, 3, -1])
def test_an_element_is_asked_for_only_where_the_array_reaches(index):
    one_axis = explore(lambda: SLOPE[index].item(), "f").yes
    if index < 0:
        assert one_axis.yes.message[-1] == " elements"  # below the first
        one_axis = one_axis.no
    assert (one_axis.question.op, one_axis.question.args[1].op) == ("<", "extent")
    assert one_axis.no.error == "FieldError"
    assert " is outside of an axis of " in "".join(map(str, one_axis.no.message))
    assert isinstance(one_axis.yes, Returned)


def test_an_item_by_one_number_is_its_place_in_arrays_of_any_number_of_axes():
    assert isinstance(explore(lambda: SLOPE.item(3), "f"), Returned)
    assert explore(lambda: SLOPE.item(0, 3), "f") != explore(lambda: SLOPE.item(3), "f")


def test_an_error_in_every_number_of_axes_is_the_classs_own():
    class Misspelt(PRelu):
        """Unpacks what is no tuple of its own."""

        def output_dims(self, x):
            return self.slope.shape + self.unknown_name

    with pytest.raises(ExportError, match=r"Misspelt.output_dims cannot be exported: AttributeError: .*unknown_name"):
        trace_plugin(Misspelt)


def test_a_kernel_is_not_given_a_field_itself():
    class Direct(PRelu):
        """Without a Constant."""

        def initialize(self):
            self._slope = self.slope

    with pytest.raises(ExportError, match=r"`const float\* slope`[\s\S]*\nDo: pytrtplugins.cuda.Constant\(field\)"):
        trace_plugin(Direct)


def test_a_value_in_the_export_is_part_of_the_library():
    @ptp.plugin(namespace="test.export.fixed")
    class Loop(PRelu):
        """Goes through its slopes."""

        twice: npt.NDArray[np.float32] = np.array([1, 2], np.float32)

        def initialize(self):
            self._slope = Constant(np.array([value * 2 for value in self.twice], np.float32))

    with pytest.raises(ExportError, match=r"Loop.twice: a loop needs its values"):
        trace_plugin(Loop)
    traced = trace_plugin(Loop, {"twice": [3, 4]})
    assert [constant.tolist() for constant in traced.constants] == [[6, 8]]
    assert not traced.tables


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_asked_of_elements_is_what_numpy_answers(export, question):
    values = [-np.inf, -1, -0.0, 0.0, 1, 2, 3, np.inf, np.nan]
    exported, x = export(Question), np.zeros(1, np.float32)
    for pairs in (*([pair] for pair in itertools.product(values, values)), [(0, 1), (2, 1)], [(1, 2), (3, 4)]):
        plugin = Question(question, *np.float32(pairs).T)
        with np.errstate(all="ignore"):
            assert exported.run(plugin, x)[0] == plugin.compute(x), pairs
