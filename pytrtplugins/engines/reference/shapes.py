"""Operators that only move values: each element of the result is an element of an input."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...model.slices import bounded_slice
from ...tensor import Array

__all__ = ["SHAPE_OPS"]

Attributes = Mapping[str, Any]


def _concat(a: Attributes, *values: Array) -> Array:
    return np.concatenate(values, axis=a["axis"])


def _reshape(a: Attributes, x: Array, shape: Array) -> Array:
    sizes = [x.shape[k] if size == 0 and not a.get("allowzero") else int(size) for k, size in enumerate(shape)]
    return x.reshape(sizes)


def _transpose(a: Attributes, x: Array) -> Array:
    return np.transpose(x, a.get("perm")).copy()


def _slice(
    a: Attributes, x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
    where = range(len(starts)) if axes is None else axes
    by = [1] * len(starts) if steps is None else steps
    index = [slice(None)] * x.ndim
    for axis, *bounds in zip(where, starts, ends, by, strict=True):
        index[axis] = bounded_slice(x.shape[axis], *(int(bound) for bound in bounds))
    return x[tuple(index)]


def _split(a: Attributes, x: Array, sizes: Array | None = None) -> list[Array]:
    axis = a.get("axis", 0)
    count = a.get("num_outputs", 1)
    if sizes is None and a.get("equal") and x.shape[axis] % count:
        raise ValueError(f"the {x.shape[axis]} of axis {axis} are not a multiple of {count} outputs")
    parts = [-(-x.shape[axis] // count)] * (count - 1) if sizes is None else list(sizes[:-1])
    if sizes is not None and sizes.sum() != x.shape[axis]:
        raise ValueError(f"parts of the sizes {sizes.tolist()} do not add up to the {x.shape[axis]} of axis {axis}")
    return np.split(x, np.cumsum(parts), axis=axis)


def _squeeze(a: Attributes, x: Array, axes: Array | None = None) -> Array:
    return np.squeeze(x, None if axes is None else tuple(int(axis) for axis in axes.reshape(-1)))


def _unsqueeze(a: Attributes, x: Array, axes: Array) -> Array:
    return np.expand_dims(x, tuple(int(axis) for axis in axes.reshape(-1)))


def _flatten(a: Attributes, x: Array) -> Array:
    axis = a.get("axis", 1)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _space_to_depth(a: Attributes, x: Array) -> Array:
    n, c, h, w = x.shape
    s = a["blocksize"]
    return x.reshape(n, c, h // s, s, w // s, s).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * s * s, h // s, w // s)


def _depth_to_space(a: Attributes, x: Array) -> Array:
    n, c, h, w = x.shape
    s = a["blocksize"]
    if a.get("mode", "DCR") == "DCR":
        blocks = x.reshape(n, s, s, c // s**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, c // s**2, s, s, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c // s**2, h * s, w * s)


def _pad(a: Attributes, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None) -> Array:
    """Negative numbers cut, before the others add."""
    where = list(range(x.ndim)) if axes is None else [int(axis) for axis in axes]
    width = np.zeros((x.ndim, 2), np.int64)
    width[where] = pads.reshape(2, -1).T
    x = x[tuple(slice(max(-low, 0), size + min(high, 0)) for (low, high), size in zip(width, x.shape, strict=True))]
    mode = a.get("mode", "constant")
    constant = {"constant_values": 0 if value is None else value.item()} if mode == "constant" else {}
    return np.pad(x, np.maximum(width, 0), mode=mode, **constant)


def _constant_of_shape(a: Attributes, shape: Array) -> Array:
    value = a.get("value", np.zeros(1, np.float32))
    return np.full([int(size) for size in shape], value.item(), value.dtype)


SHAPE_OPS: dict[str, Callable[..., Any]] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": lambda a, x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(s) for s in shape))),
    "Flatten": _flatten,
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": lambda a, x: np.array(x.shape[a.get("start", 0) : a.get("end")], np.int64),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": lambda a, x, repeats: np.tile(x, repeats),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Name of an operator → function (attributes, *inputs) → output, or a list of outputs."""
