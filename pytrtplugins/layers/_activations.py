"""The activations of darknet's heads: computed in double, stored in the array's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..tensor import Array, array_namespace

if TYPE_CHECKING:
    from ..decompose import OpBuilder, Value

__all__ = ["Part", "compute_parts", "decompose_parts", "logistic", "softmax"]

Part = tuple[str, int, int]
"""``("logistic" | "softmax" | "as-is", begin, end)``: what is applied to which entries of a box."""


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), as ``logistic_activate`` in pjreddie/darknet f6afaabc, src/activations.h."""
    xp = array_namespace(x)
    with np.errstate(over="ignore"):  # exp of large values is infinite, and the result 0
        return cast(Array, (1.0 / (1.0 + xp.exp(-x.astype(xp.float64)))).astype(x.dtype))


def softmax(x: Array, axis: int) -> Array:
    """exp(x - max) / sum along an axis, as ``softmax`` in pjreddie/darknet f6afaabc, src/blas.c, with temperature 1.

    Added one after the other in float, then multiplied by the reciprocal, as darknet's library does (it is compiled with
    -Ofast), so that the result has its bits wherever its expf rounds correctly.
    """
    xp = array_namespace(x)
    x32 = x.astype(xp.float32)
    e = xp.exp((x32 - x32.max(axis=axis, keepdims=True)).astype(xp.float64)).astype(xp.float32)
    total = xp.take(xp.cumsum(e, axis=axis), xp.asarray([-1]), axis=axis)  # a sum may add pairwise
    return cast(Array, (e * (xp.float32(1) / total)).astype(x.dtype))


def compute_parts(x: Array, entries: int, parts: Sequence[Part]) -> Array:
    """Apply each part's activation: x is [N, boxes·entries, H, W], the result a new array of the same shape."""
    n, c, h, w = x.shape
    y = x.reshape(n, c // entries, entries, h, w).copy()
    for kind, begin, end in parts:
        part = y[:, :, begin:end]
        if kind == "logistic":
            y[:, :, begin:end] = logistic(part)
        elif kind == "softmax":
            y[:, :, begin:end] = softmax(part, axis=2)
    return y.reshape(x.shape)


def decompose_parts(op: OpBuilder, x: Value, entries: int, parts: Sequence[Part]) -> Any:
    """The same with standard operators: one 4-D tensor per box, split, activated and joined."""
    _, c, h, w = x.dims
    boxes = op.Reshape(x, [-1, entries, h, w])
    sizes = [end - begin for _, begin, end in parts]
    pieces = op.Split(boxes, sizes, axis=1, outputs=len(parts)) if len(parts) > 1 else [boxes]
    done = [
        op.Sigmoid(piece) if kind == "logistic" else op.Softmax(piece, axis=1) if kind == "softmax" else piece
        for piece, (kind, _, _) in zip(pieces, parts, strict=True)
    ]
    return op.Reshape(op.Concat(*done, axis=1) if len(done) > 1 else done[0], [-1, c, h, w])
