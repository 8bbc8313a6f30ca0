"""Operators that read or write at positions, or give positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...tensor import Array

__all__ = ["INDEXING_OPS"]

Attributes = Mapping[str, Any]


def _along(index: Array, axis: int) -> tuple[Array, ...]:
    """An index of an array whose positions along one axis are given for each element."""
    places = list(np.ogrid[tuple(map(slice, index.shape))])
    places[axis] = index
    return tuple(places)


def _put(a: Attributes, x: Array, index: tuple[Array, ...], updates: Array) -> Array:
    y, reduction = x.copy(), a.get("reduction", "none")
    if reduction == "none":
        y[index] = updates
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction].at(y, index, updates)
    return y


def _scatter_elements(a: Attributes, x: Array, indices: Array, updates: Array) -> Array:
    return _put(a, x, _along(indices, a.get("axis", 0)), updates)


def _scatter_nd(a: Attributes, x: Array, indices: Array, updates: Array) -> Array:
    return _put(a, x, tuple(np.moveaxis(indices, -1, 0)), updates)


def _unique(a: Attributes, x: Array) -> list[Array]:
    """The values, the first position of each, which of them each element is, and how often each comes."""
    axis = a.get("axis")
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    order = np.arange(len(first)) if a.get("sorted", 1) else np.argsort(first)
    values = np.take(values, order, axis=0 if axis is None else axis)
    return [values, first[order], np.argsort(order)[inverse.reshape(-1)], counts[order]]


def _non_max_suppression(
    a: Attributes,
    boxes: Array,
    scores: Array,
    limit: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    """[boxes that stay, (image, class, box)], the best of each class first; all in float32, as onnxruntime."""
    count = 0 if limit is None else int(limit.item())
    threshold = np.float32(0 if overlap is None else overlap.item())
    one, other = boxes[..., :2], boxes[..., 2:]
    if a.get("center_point_box"):
        one, other = one - other / 2, one + other / 2
    low, high = np.minimum(one, other), np.maximum(one, other)
    areas, selected = np.prod(high - low, axis=-1), []
    for image, kind in np.ndindex(scores.shape[:2]):
        order = np.argsort(-scores[image, kind], kind="stable")
        if least is not None:
            order = order[scores[image, kind][order] > least.item()]
        kept: list[int] = []
        for box in order:
            if len(kept) >= count:
                break
            sides = np.minimum(high[image, kept], high[image, box]) - np.maximum(low[image, kept], low[image, box])
            shared = np.prod(np.maximum(sides, 0), axis=-1)
            if not (shared / (areas[image, kept] + areas[image, box] - shared) > threshold).any():
                kept.append(int(box))
        selected += [(image, kind, box) for box in kept]
    return np.array(selected, np.int64).reshape(-1, 3)


INDEXING_OPS: dict[str, Callable[..., Any]] = {
    "Gather": lambda a, x, index: np.take(x, index, axis=a.get("axis", 0)),
    "GatherElements": lambda a, x, index: x[_along(index, a.get("axis", 0))],
    "NonMaxSuppression": _non_max_suppression,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Unique": _unique,
}
"""Name of an operator → function (attributes, *inputs) → output, or a list of outputs."""
