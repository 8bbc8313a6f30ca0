"""Reorg against darknet's C function and against plain loops."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import DimsError, FieldError
from pytrtplugins.layers import Reorg
from pytrtplugins.tensor import DType, SymbolicDim, TensorDesc


def plain_reorg(x, s, reverse):
    """darknet's loop, retold: src/blas.c reorg_cpu."""
    n, c, h, w = x.shape
    flat, out = x.reshape(n, -1), np.empty((n, x[0].size), x.dtype)
    few = c // (s * s)
    for k in range(c):
        offset, k2 = divmod(k, few)
        for j in range(h):
            for i in range(w):
                here = i + w * (j + h * k)
                there = i * s + offset % s + w * s * (j * s + offset // s + h * s * k2)
                if reverse:
                    out[:, there] = flat[:, here]
                else:
                    out[:, here] = flat[:, there]
    shape = (n, few, h * s, w * s) if reverse else (n, c * s * s, h // s, w // s)
    return out.reshape(shape)


@st.composite
def cases(draw):
    """A Reorg and the dims of an input that it takes."""
    n, c, h, w, s = (draw(st.integers(1, most)) for most in (2, 3, 3, 3, 3))
    reverse = draw(st.booleans())
    side = 1 if reverse else s
    return Reorg(s, reverse), (n, c * s**2, h * side, w * side)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@given(cases())
def test_reorg_is_darknets_permutation_in_any_type(dtype, case):
    reorg, dims = case
    x = np.arange(np.prod(dims)).reshape(dims).astype(dtype)
    y = reorg.all_outputs([x])[0]
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, plain_reorg(x, reorg.stride, reorg.reverse))


@given(cases())
def test_reorg_equals_libdarknet_bit_for_bit(libdarknet, case):
    reorg, (n, c, h, w) = case
    function = ctypes.CDLL(str(libdarknet.path)).reorg_cpu
    pointer = np.ctypeslib.ndpointer(np.float32, flags="C")
    function.argtypes = [pointer, *[ctypes.c_int] * 6, pointer]
    function.restype = None
    x = np.random.default_rng(0).standard_normal((n, c, h, w), np.float32)
    out = np.empty_like(x)
    function(x, w, h, c, n, reorg.stride, int(reorg.reverse), out)
    y = reorg.all_outputs([x])[0]
    assert y.tobytes() == out.tobytes()


def test_it_is_not_space_to_depth():
    x = np.arange(64, dtype=np.float32).reshape(1, 4, 4, 4)
    space_to_depth = x.reshape(1, 4, 2, 2, 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 16, 2, 2)
    assert not np.array_equal(Reorg(2).compute(x), space_to_depth)


@pytest.mark.parametrize(
    ("dims", "what"),
    [((1, 3, 4, 4), "channels"), ((1, 4, 3, 4), "height"), ((1, 4, 4, 3), "width"), ((4, 4, 4), "axes")],
)
def test_dims_that_darknet_would_read_past_are_refused(dims, what):
    with pytest.raises(DimsError, match=what):
        Reorg(2).output_dims(dims)


def test_a_symbolic_batch_passes_through():
    n = SymbolicDim("N")
    assert Reorg(2).output_dims((n, 64, 26, 26)) == (n, 256, 13, 13)
    assert Reorg(2, reverse=True).output_dims((n, 256, 13, 13)) == (n, 64, 26, 26)


def test_a_stride_below_one_is_refused():
    with pytest.raises(FieldError, match="at least 1"):
        Reorg(0)


def test_int8_passes_through():
    descs = [TensorDesc("x", (1, 4, 2, 2), DType.INT8), TensorDesc("y", (1, 16, 1, 1), DType.INT8)]
    assert all(Reorg(2).supports_format(i, descs) for i in range(2))


def test_the_result_is_a_copy():
    x = np.zeros((1, 1, 2, 2), np.float32)
    assert not np.may_share_memory(Reorg(1).compute(x), x)
