"""Limits of the rules: what they take just so, what they refuse, and how they tell it."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import in_formats, rules, sharing
from pytrtplugins.check.cases import Case
from pytrtplugins.errors import DimsError, PluginError, SerializationError
from pytrtplugins.tensor import DType
from tests.check.test_rules import Both, Right, broken, case


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
