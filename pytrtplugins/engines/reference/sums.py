"""Operators that sum: matrix products, reductions and normalizations.

Sums are taken in float64 and rounded to float32 once, so the results are nearer to the true ones than those of an engine
that sums in float32. Integers stay integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...tensor import Array

__all__ = ["SUM_OPS"]

Attributes = Mapping[str, Any]


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def _gemm(a: Attributes, x: Array, y: Array, bias: Array | None = None, matmul: Any = np.matmul) -> Array:
    left, right = (x.T if a.get("transA") else x), (y.T if a.get("transB") else y)
    product = a.get("alpha", 1.0) * matmul(_wide(left), _wide(right))
    return (product if bias is None else product + a.get("beta", 1.0) * _wide(bias)).astype(x.dtype)


def _matmul(a: Attributes, x: Array, y: Array, matmul: Any = np.matmul) -> Array:
    return np.asarray(matmul(_wide(x), _wide(y)), x.dtype)


def _matmul_integer(
    a: Attributes, x: Array, y: Array, x_zero: Array | None = None, y_zero: Array | None = None
) -> Array:
    """A zero point may have a number for each row of x, and for each column of y."""
    left, right = x.astype(np.int32), y.astype(np.int32)
    if x_zero is not None:
        left = left - (x_zero[:, None] if x_zero.ndim == 1 and x_zero.size > 1 else x_zero).astype(np.int32)
    return np.matmul(left, right if y_zero is None else right - y_zero.astype(np.int32))


def _einsum(a: Attributes, *values: Array) -> Array:
    result: Array = np.einsum(a["equation"], *(_wide(value) for value in values))
    return np.asarray(result, values[0].dtype)


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(a: Attributes, x: Array, axes: Array | None = None) -> Array:
        chosen = a.get("axes", ()) if axes is None else axes  # an attribute before opset 18, ReduceSum's before 13
        over = tuple(int(axis) for axis in chosen) or (() if a.get("noop_with_empty_axes") else None)
        return np.asarray(function(_wide(x), axis=over, keepdims=bool(a.get("keepdims", 1))), x.dtype)

    return run


def _extreme(function: Callable[..., Array], largest: bool) -> Callable[..., Array]:
    """The largest or smallest number; of none, what every number beats."""

    def extreme(x: Array, **over: Any) -> Array:
        if x.dtype.kind == "b":
            return function(x, initial=not largest, **over)
        worst = -np.inf if largest else np.inf
        if x.dtype.kind in "iu":
            worst = np.iinfo(x.dtype).min if largest else np.iinfo(x.dtype).max
        return function(x, initial=worst, **over)

    return extreme


def _norm(order: int) -> Callable[..., Array]:
    def norm(x: Array, **over: Any) -> Array:
        return np.asarray(np.abs(x).sum(**over) if order == 1 else np.sqrt(np.square(x, dtype=np.float64).sum(**over)))

    return norm


def _mean(x: Array, **over: Any) -> Array:
    """Whole numbers are divided as in C: towards zero."""
    if x.dtype.kind == "f":
        return np.asarray(np.mean(x, **over))
    total = np.asarray(np.sum(x, **over))
    count = total.dtype.type(x.size // max(total.size, 1))
    return np.asarray((abs(total) // count) * np.sign(total))


def _log_sum_exp(x: Array, **over: Any) -> Array:
    wide = x.astype(np.float64)
    top = wide.max(axis=over["axis"], keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    sums = np.exp(wide - top).sum(**over)
    return np.asarray(np.log(sums) + top.reshape(sums.shape))


def _softmax(a: Attributes, x: Array) -> Array:
    axis = a.get("axis", -1)
    e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True, initial=-np.inf))
    return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)


def _log_softmax(a: Attributes, x: Array) -> Array:
    axis = a.get("axis", -1)
    below = x.astype(np.float64) - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return (below - np.log(np.exp(below).sum(axis=axis, keepdims=True))).astype(x.dtype)


def _batch_norm(a: Attributes, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    s, b, m, v = (value.astype(np.float64).reshape(-1, *[1] * (x.ndim - 2)) for value in (scale, bias, mean, variance))
    return ((x - m) / np.sqrt(v + a.get("epsilon", 1e-5)) * s + b).astype(x.dtype)


def _lp_normalization(a: Attributes, x: Array) -> Array:
    length = _norm(a.get("p", 2))(_wide(x), axis=a.get("axis", -1), keepdims=True)
    return np.divide(x, length, where=length != 0, out=np.zeros(x.shape)).astype(x.dtype)


def _lrn(a: Attributes, x: Array) -> Array:
    """Across channels: the window reaches (size - 1) // 2 down, and the rest up."""
    low = (a["size"] - 1) // 2
    border = [(0, 0), (low, a["size"] - 1 - low), *[(0, 0)] * (x.ndim - 2)]
    squares = np.pad(np.square(_wide(x)), border)
    total = sum(squares[:, first : first + x.shape[1]] for first in range(a["size"]))
    base = a.get("bias", 1.0) + a.get("alpha", 1e-4) / a["size"] * total
    return (x / base ** a.get("beta", 0.75)).astype(x.dtype)


def _global(function: Callable[..., Array]) -> Callable[..., Array]:
    def run(a: Attributes, x: Array) -> Array:
        return function(_wide(x), axis=tuple(range(2, x.ndim)), keepdims=True).astype(x.dtype)

    return run


SUM_OPS: dict[str, Callable[..., Any]] = {
    "BatchNormalization": _batch_norm,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GlobalAveragePool": _global(np.mean),
    "GlobalMaxPool": _global(np.max),
    "LRN": _lrn,
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_normalization,
    "MatMul": _matmul,
    "MatMulInteger": _matmul_integer,
    "ReduceL1": _reduce(_norm(1)),
    "ReduceL2": _reduce(_norm(2)),
    "ReduceLogSum": _reduce(lambda x, **over: np.log(np.sum(x, **over))),
    "ReduceLogSumExp": _reduce(_log_sum_exp),
    "ReduceMax": _reduce(_extreme(np.max, largest=True)),
    "ReduceMean": _reduce(_mean),
    "ReduceMin": _reduce(_extreme(np.min, largest=False)),
    "ReduceSum": _reduce(np.sum),
    "ReduceSumSquare": _reduce(lambda x, **over: np.square(x).sum(**over)),
    "Softmax": _softmax,
}
"""Name of an operator → function (attributes, *inputs) → output."""
