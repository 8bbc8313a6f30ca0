"""The activations of darknet's heads: computed in double, stored in the array's type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..tensor import Array, array_namespace

if TYPE_CHECKING:
    from ..model.op_builder import OpBuilder, Value

__all__ = [
    "Part",
    "compute_parts",
    "decompose_parts",
    "decompose_siblings",
    "logistic",
    "sibling_groups",
    "softmax",
]

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


def compute_parts(x: Array, entries: int, parts: Sequence[Part], first: tuple[float, float] = (1.0, 0.0)) -> Array:
    """Apply each part's activation: x is [N, boxes·entries, H, W], the result a new array of the same shape.

    ``first`` is a factor and a summand for the first part.
    """
    n, c, h, w = x.shape
    y = x.reshape(n, c // entries, entries, h, w).copy()
    for kind, begin, end in parts:
        part = y[:, :, begin:end]
        if kind == "logistic":
            y[:, :, begin:end] = logistic(part)
        elif kind == "softmax":
            y[:, :, begin:end] = softmax(part, axis=2)
    if first != (1.0, 0.0):
        xp = array_namespace(x)
        begin, end = parts[0][1:]
        y[:, :, begin:end] = y[:, :, begin:end].astype(xp.float32) * xp.float32(first[0]) + xp.float32(first[1])
    return y.reshape(x.shape)


def decompose_parts(
    op: OpBuilder, x: Value, entries: int, parts: Sequence[Part], first: tuple[float, float] = (1.0, 0.0)
) -> Any:
    """The same with standard operators: one 4-D tensor per box, split, activated and joined."""
    _, c, h, w = x.dims
    boxes = op.Reshape(x, [-1, entries, h, w])
    softmaxes = [part for part in parts if part[0] == "softmax"]
    tree = softmaxes if len(softmaxes) > 1 else []
    if tree:  # one operator for all groups of a size, where there can be thousands
        parts = [*(part for part in parts if part not in tree), ("tree", tree[0][1], tree[-1][2])]
    sizes = [end - begin for _, begin, end in parts]
    pieces = op.Split(boxes, sizes, axis=1, outputs=len(parts)) if len(parts) > 1 else [boxes]
    done = []
    for piece, (kind, begin, _) in zip(pieces, parts, strict=True):
        if kind == "tree":
            piece = _softmax_groups(op, piece, [(low - begin, high - begin) for _, low, high in tree], (h, w))
        elif kind != "as-is":
            piece = op.Sigmoid(piece) if kind == "logistic" else op.Softmax(piece, axis=1)
        done.append(piece)
    if first != (1.0, 0.0):
        done[0] = op.Add(op.Mul(done[0], first[0]), first[1])
    return op.Reshape(op.Concat(*done, axis=1) if len(done) > 1 else done[0], [-1, c, h, w])


def sibling_groups(tree: Sequence[int]) -> list[tuple[int, int]]:
    """Begin and end of each run of classes with one parent (src/tree.c, read_tree)."""
    groups, begin = [], 0
    for _, siblings in groupby(tree):
        end = begin + len(list(siblings))
        groups.append((begin, end))
        begin = end
    return groups


def decompose_siblings(op: OpBuilder, x: Value, tree: Sequence[int]) -> Any:
    """Softmax over each group of siblings of [N, classes, 1, 1], with standard operators."""
    return _softmax_groups(op, x, sibling_groups(tree), (1, 1))


def _softmax_groups(op: OpBuilder, x: Any, groups: Sequence[tuple[int, int]], size: tuple[Any, Any]) -> Any:
    """Softmax over each range of channels of [N, C, H, W]: ranges of one length go through one operator together."""
    by_length: dict[int, list[int]] = {}
    for begin, end in groups:
        by_length.setdefault(end - begin, []).append(begin)
    done, order = [], []
    for length, begins in by_length.items():
        channels = [begin + k for begin in begins for k in range(length)]
        order += channels
        picked = op.Reshape(op.Gather(x, channels, axis=1), [-1, length, *size])
        done.append(op.Reshape(op.Softmax(picked, axis=1), [-1, len(channels), *size]))
    joined = op.Concat(*done, axis=1) if len(done) > 1 else done[0]
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return joined if inverse == list(range(len(order))) else op.Gather(joined, inverse, axis=1)
