"""Dims, element types and descriptions."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import DimsError, PluginError
from pytrtplugins.tensor import (
    SMALL_DTYPES,
    DType,
    SymbolicDim,
    TensorDesc,
    array_namespace,
    check_divisible,
    evaluate_dims,
    is_concrete,
)

SYMBOLS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(SYMBOLS)), st.integers(1, 9), st.booleans()), max_size=6),
    st.integers(0, 50),
)
def test_symbolic_arithmetic_equals_arithmetic_on_numbers(steps, value):
    symbolic, number = SymbolicDim("N"), value
    for symbol, operand, swapped in steps:
        if swapped and symbol in "+-*":
            symbolic, number = SYMBOLS[symbol](operand, symbolic), SYMBOLS[symbol](operand, number)
        else:
            symbolic, number = SYMBOLS[symbol](symbolic, operand), SYMBOLS[symbol](number, operand)
    assert evaluate_dims((symbolic,), {"N": value}) == (number,)


def test_neutral_operations_leave_a_symbolic_dim_as_it_is():
    n = SymbolicDim("N")
    assert (n * 1, n + 0, 1 * n, n // 1, n - 0) == (n,) * 5
    assert (n * 0, n % 1) == (0, 0)


def test_a_symbolic_dim_has_no_truth_value_and_no_number():
    n = SymbolicDim("N")
    with pytest.raises(DimsError, match="symbolic"):
        bool(n)
    with pytest.raises(DimsError, match="no value yet"):
        range(n)
    for compared in (lambda: n > 4, lambda: n <= 4, lambda: n < 4, lambda: max(n, 4)):
        with pytest.raises(DimsError, match=r"whether it is larger than 4 is known only at run time\.\nDo: "):
            compared()
    with pytest.raises(DimsError, match="Do: divide with //"):
        n / 2
    with pytest.raises(DimsError, match="'N' has no value"):
        n.evaluate({"M": 1})
    assert not is_concrete(n)
    assert is_concrete(3)


def test_check_divisible_names_the_size_and_lets_symbolic_dims_pass():
    check_divisible(SymbolicDim("H"), 2, "height")
    check_divisible(4, 2, "height")
    with pytest.raises(DimsError, match="height must be a multiple of 2, found 5") as caught:
        check_divisible(5, 2, "height")
    assert caught.value.by == 2


@pytest.mark.parametrize("dtype", list(DType))
def test_every_element_type_has_a_numpy_type_of_its_size(dtype):
    if dtype is DType.BFLOAT16 or dtype in SMALL_DTYPES:
        pytest.importorskip("ml_dtypes")
    assert dtype.numpy.itemsize == dtype.itemsize
    assert DType.of(np.zeros(1, dtype.numpy)) is dtype


def test_an_unsupported_element_type_is_named():
    with pytest.raises(PluginError, match="complex64"):
        DType.of(np.zeros(1, np.complex64))


def test_a_description_reads_like_a_declaration():
    assert str(TensorDesc("data", (SymbolicDim("N"), 3, 416, 416))) == "data: float32[N, 3, 416, 416]"


def test_the_array_namespace_of_a_numpy_array_is_numpy():
    assert array_namespace(np.zeros(1)) is np


def test_the_array_namespace_of_cupys_arrays_is_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", sys)
    assert array_namespace(type("ndarray", (), {"__module__": "cupy._core.core"})()) is sys
    assert array_namespace(type("ndarray", (), {"__module__": "cupyx"})()) is np
