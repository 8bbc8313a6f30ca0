"""Reduction operators, softmaxes and TopK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .table import OPS, Attributes, op, reduced_axes


def _reduce(name: str, function: Callable[[Any, Any, Any, bool], Any]) -> None:
    def run(xp: Any, attributes: Attributes, dims: Any, x: Any, axes: Any = None) -> Any:
        return function(xp, x, reduced_axes(attributes, axes, x.ndim), bool(attributes.get("keepdims", 1)))

    op(name, host_inputs=(1,))(run)


def _lowest(x: Any) -> Any:
    return -np.inf if x.dtype.kind == "f" else False if x.dtype.kind == "b" else np.iinfo(x.dtype).min


def _highest(x: Any) -> Any:
    return np.inf if x.dtype.kind == "f" else True if x.dtype.kind == "b" else np.iinfo(x.dtype).max


def _largest(xp: Any, x: Any, axes: Any, keep: bool) -> Any:
    if 0 in x.shape:
        return xp.full(x.sum(axis=axes, keepdims=keep).shape, _lowest(x), x.dtype)
    return x.max(axis=axes, keepdims=keep)


def _smallest(xp: Any, x: Any, axes: Any, keep: bool) -> Any:
    if 0 in x.shape:
        return xp.full(x.sum(axis=axes, keepdims=keep).shape, _highest(x), x.dtype)
    return x.min(axis=axes, keepdims=keep)


def _square(x: Any) -> Any:
    """Of whole numbers in float64, since most types do not hold it."""
    wide = x.astype(np.float64) if x.dtype.kind in "iu" else x
    return wide * wide


def _mean(xp: Any, x: Any, axes: Any, keep: bool) -> Any:
    """Of whole numbers rounded towards zero."""
    if x.dtype.kind not in "iu":
        return x.mean(axis=axes, keepdims=keep)
    total = x.sum(axis=axes, keepdims=keep)
    return xp.abs(total) // total.dtype.type(x.size // max(total.size, 1)) * xp.sign(total)


def _log_sum_exp(xp: Any, x: Any, axes: Any, keep: bool) -> Any:
    if 0 in x.shape:
        return xp.log(xp.exp(x).sum(axis=axes, keepdims=keep))
    top = x.max(axis=axes, keepdims=True)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    sums = xp.log(xp.exp(x - top).sum(axis=axes, keepdims=True)) + top
    return sums if keep else sums.reshape(x.sum(axis=axes).shape)


_reduce("ReduceL1", lambda xp, x, axes, keep: xp.abs(x).sum(axis=axes, keepdims=keep))
_reduce("ReduceL2", lambda xp, x, axes, keep: xp.sqrt(_square(x).sum(axis=axes, keepdims=keep)))
_reduce("ReduceLogSum", lambda xp, x, axes, keep: xp.log(x.sum(axis=axes, keepdims=keep)))
_reduce("ReduceLogSumExp", _log_sum_exp)
_reduce("ReduceMax", _largest)
_reduce("ReduceMean", lambda xp, x, axes, keep: _mean(xp, x, axes, keep))
_reduce("ReduceMin", _smallest)
_reduce("ReduceProd", lambda xp, x, axes, keep: x.prod(axis=axes, keepdims=keep))
_reduce("ReduceSum", lambda xp, x, axes, keep: x.sum(axis=axes, keepdims=keep))
_reduce("ReduceSumSquare", lambda xp, x, axes, keep: (x * x).sum(axis=axes, keepdims=keep))


def _best(largest: bool) -> None:
    def run(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
        axis = attributes.get("axis", 0)
        values = xp.flip(x, axis) if attributes.get("select_last_index") else x
        found = values.argmax(axis=axis) if largest else values.argmin(axis=axis)
        if attributes.get("select_last_index"):
            found = x.shape[axis] - 1 - found
        return found.reshape(dims[0])

    OPS["ArgMax" if largest else "ArgMin"] = run


_best(True)
_best(False)


def _cumulate(name: str, function: str, neutral: int) -> None:
    def run(xp: Any, attributes: Attributes, dims: Any, x: Any, axis: Any) -> Any:
        along = int(np.asarray(axis).reshape(()))
        values = xp.flip(x, along) if attributes.get("reverse") else x
        result = getattr(xp, function)(values, axis=along)
        if attributes.get("exclusive") and x.size:
            first = xp.full_like(xp.take(result, xp.arange(1), axis=along), neutral)
            result = xp.concatenate([first, xp.take(result, xp.arange(x.shape[along] - 1), axis=along)], axis=along)
        return xp.flip(result, along) if attributes.get("reverse") else result

    op(name, host_inputs=(1,))(run)


_cumulate("CumSum", "cumsum", 0)
_cumulate("CumProd", "cumprod", 1)


@op("Softmax")
def _softmax(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    axis = attributes.get("axis", -1)
    if not x.size:
        return x
    powers = xp.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


@op("LogSoftmax")
def _log_softmax(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    axis = attributes.get("axis", -1)
    if not x.size:
        return x
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(axis=axis, keepdims=True))


@op("Hardmax")
def _hardmax(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    axis = attributes.get("axis", -1)
    if not x.size:
        return x
    best = xp.expand_dims(x.argmax(axis=axis), axis)
    along = [1] * x.ndim
    along[axis] = x.shape[axis]
    return xp.arange(x.shape[axis]).reshape(along) == best


@op("TopK", host_inputs=(1,), capturable=False)
def _top_k(xp: Any, attributes: Attributes, dims: Any, x: Any, k: Any) -> Any:
    """The first of equal values first, as ONNX says; sorted in any case."""
    axis, count, largest = (
        attributes.get("axis", -1),
        int(np.asarray(k).reshape(())),
        bool(attributes.get("largest", 1)),
    )
    if largest:  # a stable sort of the reversed axis, read backwards, keeps equal values in their order
        order = x.shape[axis] - 1 - xp.flip(xp.argsort(xp.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = xp.argsort(x, axis=axis, kind="stable")
    order = xp.take(order, xp.arange(count), axis=axis)
    return [xp.take_along_axis(x, order, axis=axis), order]
