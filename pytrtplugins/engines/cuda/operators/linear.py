"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .quantization import centered, requantized, spread
from .table import Attributes, op


@op("MatMul", capturable=False)
def _matmul(xp: Any, attributes: Attributes, dims: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a, b)


@op("Gemm", capturable=False)
def _gemm(xp: Any, attributes: Attributes, dims: Any, a: Any, b: Any, c: Any = None) -> Any:
    a, b = (a.T if attributes.get("transA") else a), (b.T if attributes.get("transB") else b)
    result = xp.matmul(a, b)
    if (alpha := attributes.get("alpha", 1.0)) != 1:
        result = result * np.float32(alpha)
    if c is None:
        return result
    beta = attributes.get("beta", 1.0)
    return result + (c if beta == 1 else c * np.float32(beta))


@op("Einsum", capturable=False)
def _einsum(xp: Any, attributes: Attributes, dims: Any, *values: Any) -> Any:
    return xp.einsum(attributes["equation"], *values)


@op("Det", capturable=False)
def _det(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return xp.linalg.det(x)


@op("MatMulInteger", capturable=False)
def _matmul_integer(
    xp: Any, attributes: Attributes, dims: Any, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None
) -> Any:
    return xp.matmul(centered(xp, a, a_zero, -1), centered(xp, b, b_zero, -2))


@op("QLinearMatMul", capturable=False)
def _qlinear_matmul(
    xp: Any, attributes: Attributes, dims: Any, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any,
    y_scale: Any, y_zero: Any,
) -> Any:  # fmt: skip
    sums = xp.matmul(centered(xp, a, a_zero, -1), centered(xp, b, b_zero, -2))
    steps = zip((a_scale, b_scale, y_scale), (-1, -2, -1), strict=True)
    left, right, out = (spread(xp, xp.asarray(step).astype(np.float32), axis) for step, axis in steps)
    scale = left * right / out
    return requantized(xp, sums * scale, y_zero)
