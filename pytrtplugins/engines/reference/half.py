"""Half precision as GPUs compute it: storage in 16 bits, arithmetic and sums in float32 or better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ...tensor import Array
from .sums import SUM_OPS
from .windows import WINDOW_OPS

__all__ = ["HALF_SUM_OPS", "STAYS_HALF", "half_type", "is_half", "matmul_half", "run_wide"]

_HALF = ("float16", "bfloat16")
STAYS_HALF = frozenset(("Clip",))
"""Operators that compute half numbers as they are: their limits are those of the type."""
_PRODUCTS = 16  # of one tensor core instruction


@cache  # NumPy makes a type's name anew each time that it is asked for
def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether it is float16 or bfloat16; the latter is ml_dtypes', which NumPy does not take for a float."""
    return dtype.name in _HALF


def half_type(values: Sequence[Any]) -> np.dtype[Any] | None:
    """The half type among the inputs of an operator; None if there is none."""
    return next((value.dtype for value in values if isinstance(value, np.ndarray) and is_half(value.dtype)), None)


def run_wide(function: Callable[..., Any], attributes: Any, values: Sequence[Any], keeps_type: bool) -> list[Any]:
    """Run an operator that reads half numbers: they are widened to float32, and what it gives is rounded once.

    With ``keeps_type`` a float result gets the type of the first float operand, which others may accompany in other types; Cast
    says its type itself.
    """
    dtype = next(
        value.dtype for value in values if value is not None and (value.dtype.kind == "f" or is_half(value.dtype))
    )
    wide = [value.astype(np.float32) if value is not None and is_half(value.dtype) else value for value in values]
    result = function(attributes, *wide)
    results = result if isinstance(result, list) else [result]
    if not keeps_type:
        return results
    return [value.astype(dtype) if value.dtype.kind == "f" else value for value in results]


def matmul_half(left: Array, right: Array) -> Array:
    """The product of two matrices, or of stacks of them, as GPU kernels sum it that do not ask for float32: in float16.

    Sixteen products at a time are added, and rounded to a float16 number; the result holds these in float64.
    """
    total = np.zeros((), np.float64)
    for first in range(0, left.shape[-1], _PRODUCTS):
        part = np.matmul(left[..., first : first + _PRODUCTS], right[..., first : first + _PRODUCTS, :])
        total = (total + part).astype(np.float16).astype(np.float64)
    return total


HALF_SUM_OPS: dict[str, Callable[..., Any]] = {
    "Conv": partial(WINDOW_OPS["Conv"], matmul=matmul_half),
    "Gemm": partial(SUM_OPS["Gemm"], matmul=matmul_half),
    "MatMul": partial(SUM_OPS["MatMul"], matmul=matmul_half),
}
"""Name of an operator → the function that sums with `matmul_half`."""
