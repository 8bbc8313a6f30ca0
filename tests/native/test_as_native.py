"""Python plugins behind the C++ interface, called from a thread that Python did not start."""

from __future__ import annotations

import traceback
from functools import partial
from typing import Any

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins import native
from pytrtplugins.errors import DimsError, FieldError
from tests.user_plugins import Visited


@ptp.plugin(namespace="native.tests")
class Halves(ptp.Plugin):
    """Give the first half of the channels, times a factor; through a workspace and state of its own."""

    factor: float = 1.0
    label: str = "ä"
    counts: tuple[int, ...] = (1, 2)

    def output_dims(self, x):
        ptp.tensor.check_divisible(x[1], 2, "Halves: channels")
        return (x[0], x[1] // 2, *x[2:])

    def compute(self, x):
        return x[:, : x.shape[1] // 2] * np.float32(self.factor)

    def configure(self, inputs, outputs):
        self.size = outputs[0].dims

    def workspace_size(self, inputs, outputs):
        return 4 * int(np.prod(outputs[0].dims))

    def enqueue(self, inputs, outputs, workspace, stream):
        scratch = workspace.view(np.float32).reshape(self.size)
        scratch[...] = self.compute(inputs[0])
        outputs[0][...] = scratch
        assert not inputs[0].flags.writeable
        assert stream is None


ERRORS = {  # of each method: the error, the kind of the exception in C++, and its text
    "output_dims": (partial(DimsError, "dims of my own", expected=4), 1, "dims of my own"),
    "configure": (partial(FieldError, "field of my own"), 3, "field of my own"),
    "workspace_size": (partial(OverflowError, "size of my own"), 2, "OverflowError: size of my own"),
    "initialize": (partial(KeyError, "key of my own"), 2, "KeyError: 'key of my own'"),
    "enqueue": (partial(ZeroDivisionError, "division of my own"), 2, "ZeroDivisionError: division of my own"),
}


@ptp.plugin(namespace="native.tests")
class Raises(Visited):
    where: str = ""

    def visit(self, method, value):
        if method == self.where:
            raise ERRORS[method][0]()
        return value


def test_a_cpp_caller_runs_a_python_plugin(call):
    x = np.random.default_rng(1).standard_normal((2, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(call(native.as_native(Halves(factor=3)), x, (2, 2, 3)), 3 * x[:, :2])


def test_its_bytes_in_cpp_are_pythons(acme):
    plugin = Halves(factor=0.1, label="größe", counts=())
    assert native.as_native(plugin).serialize() == plugin.serialize()
    assert native.as_native(Halves()).deserialize(plugin.serialize()).serialize() == plugin.serialize()


def test_symbolic_dims_pass_both_borders(acme):
    n, c = ptp.SymbolicDim("N"), ptp.SymbolicDim("C")
    dims: list[Any] = [(n, 4, 5), (n * 2 + 1, c, 5 - n), (7 // n, c % 3 * 2, 1)]
    for inputs in dims:
        assert native.as_native(Halves()).output_dims([inputs]) == list(Halves().all_output_dims([inputs]))


def test_a_refusal_is_a_dims_error_in_cpp(call):
    kind, message = call(native.as_native(Halves()), np.ones((1, 3, 1), np.float32), (1, 1, 1))
    assert (kind, message) == (1, "Halves: channels must be a multiple of 2, found 3")


@pytest.mark.parametrize("where", ERRORS)
def test_python_exceptions_are_cpp_exceptions_of_their_class(call, where):
    found = call(native.as_native(Raises(where)), np.ones((1, 2), np.float32), (1, 2))
    assert found == ERRORS[where][1:]


@pytest.mark.parametrize("where", ERRORS)
def test_through_cpp_and_back_they_are_the_original_with_its_traceback(acme, where):
    x, y = np.ones(2, np.float32), np.ones(2, np.float32)
    from pytrtplugins import _native

    with pytest.raises(ERRORS[where][0].func, match="of my own") as caught:
        _native.run(native.as_native(Raises(where)), [x], [y])
    assert "visit" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_a_clone_in_cpp_is_a_clone_in_python(acme):
    handle = native.as_native(Halves())
    assert handle.clone().address != handle.address
    assert handle.clone().serialize() == handle.serialize()
