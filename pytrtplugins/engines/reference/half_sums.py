"""Sums of products in float16, as GPU kernels take them that do not ask for float32: sixteen at a time, rounded after each sixteen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .sums import SUM_OPS
from .windows import WINDOW_OPS

__all__ = ["HALF_SUM_OPS", "matmul_half"]

_PRODUCTS = 16  # of one tensor core instruction


def matmul_half(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The product of two matrices, or of stacks of them; its sums are float16 numbers, in float64."""
    total: npt.NDArray[Any] = np.zeros((), np.float64)
    for first in range(0, left.shape[-1], _PRODUCTS):
        part = np.matmul(left[..., first : first + _PRODUCTS], right[..., first : first + _PRODUCTS, :])
        total = (total + part).astype(np.float16).astype(np.float64)
    return total


HALF_SUM_OPS: dict[str, Callable[..., Any]] = {
    "Conv": partial(WINDOW_OPS["Conv"], matmul=matmul_half),
    "Gemm": partial(SUM_OPS["Gemm"], matmul=matmul_half),
    "MatMul": partial(SUM_OPS["MatMul"], matmul=matmul_half),
}
"""Name of an operator → function (attributes, *inputs) → output."""
