"""Python plugins behind the C++ interface, called from a thread that Python did not start."""

from __future__ import annotations

import ctypes
import traceback
from typing import Any

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins import native
from pytrtplugins.errors import DimsError, FieldError


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


@ptp.plugin(namespace="native.tests")
class Raises(ptp.Plugin):
    """Raise in a method."""

    where: str = ""

    def output_dims(self, x):
        self._raise("output_dims", DimsError("dims of my own", expected=4))
        return x

    def compute(self, x):
        return x

    def configure(self, inputs, outputs):
        self._raise("configure", FieldError("field of my own"))

    def workspace_size(self, inputs, outputs):
        self._raise("workspace_size", OverflowError("size of my own"))
        return 0

    def initialize(self):
        self._raise("initialize", KeyError("key of my own"))

    def enqueue(self, inputs, outputs, workspace, stream):
        self._raise("enqueue", ZeroDivisionError("division of my own"))

    def _raise(self, method, error):
        if method == self.where:
            raise error


@pytest.fixture
def call(acme, acme_path):
    """Run a plugin in C++: gives the outputs, or the kind and message of the C++ exception."""
    function = ctypes.CDLL(str(acme_path)).call

    def call_(handle, x, shape):
        y = np.full(shape, np.nan, np.float32)
        dims, message = (ctypes.c_int64 * x.ndim)(*x.shape), ctypes.create_string_buffer(4000)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (x, y)]
        kind = function(ctypes.c_void_p(handle.address), dims, x.ndim, *pointers, message)
        return (kind, message.value.decode()) if kind else y

    return call_


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


@pytest.mark.parametrize(
    ("where", "kind", "text"),
    [("output_dims", 1, "dims of my own"), ("configure", 3, "field of my own"),
     ("workspace_size", 2, "OverflowError: size of my own"), ("initialize", 2, "KeyError: 'key of my own'"),
     ("enqueue", 2, "ZeroDivisionError: division of my own")],
)  # fmt: skip
def test_python_exceptions_are_cpp_exceptions_of_their_class(call, where, kind, text):
    found, message = call(native.as_native(Raises(where)), np.ones((1, 2), np.float32), (1, 2))
    assert (found, message) == (kind, text)


@pytest.mark.parametrize(
    ("where", "error"),
    [("output_dims", DimsError), ("configure", FieldError), ("workspace_size", OverflowError), ("initialize", KeyError),
     ("enqueue", ZeroDivisionError)],
)  # fmt: skip
def test_through_cpp_and_back_they_are_the_original_with_its_traceback(acme, where, error):
    x, y = np.ones(2, np.float32), np.ones(2, np.float32)
    from pytrtplugins import _native

    with pytest.raises(error, match="of my own") as caught:
        _native.run(native.as_native(Raises(where)), [x], [y])
    assert "_raise" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_a_clone_in_cpp_is_a_clone_in_python(acme):
    handle = native.as_native(Halves())
    assert handle.clone().address != handle.address
    assert handle.clone().serialize() == handle.serialize()
