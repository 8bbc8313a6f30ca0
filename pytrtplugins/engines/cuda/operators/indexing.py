"""Gather, scatter and other indexing operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from .index_flags import places
from .table import Attributes, op


@op("Gather")
def _gather(xp: Any, attributes: Attributes, dims: Any, x: Any, indices: Any) -> Any:
    axis = attributes.get("axis", 0)
    return xp.take(x, places(xp, indices, x.shape[axis]), axis=axis)


@op("GatherElements")
def _gather_elements(xp: Any, attributes: Attributes, dims: Any, x: Any, indices: Any) -> Any:
    axis = attributes.get("axis", 0) % x.ndim
    return x[_along(xp, places(xp, indices, x.shape[axis]), axis)]


@op("GatherND")
def _gather_nd(xp: Any, attributes: Attributes, dims: Any, x: Any, indices: Any) -> Any:
    batch = attributes.get("batch_dims", 0)
    index = _nd_index(xp, indices, x.shape[batch:])
    lead = [
        xp.arange(size).reshape([size if axis == place else 1 for axis in range(indices.ndim - 1)])
        for place, size in enumerate(x.shape[:batch])
    ]
    return x[(*lead, *index)]


@op("ScatterElements", "Scatter")
def _scatter_elements(xp: Any, attributes: Attributes, dims: Any, x: Any, indices: Any, updates: Any) -> Any:
    axis = attributes.get("axis", 0) % x.ndim
    return _put(
        xp, x, _along(xp, places(xp, indices, x.shape[axis]), axis), updates, attributes.get("reduction", "none")
    )


@op("ScatterND")
def _scatter_nd(xp: Any, attributes: Attributes, dims: Any, x: Any, indices: Any, updates: Any) -> Any:
    return _put(xp, x, _nd_index(xp, indices, x.shape), updates, attributes.get("reduction", "none"))


@op("TensorScatter")
def _tensor_scatter(xp: Any, attributes: Attributes, dims: Any, past: Any, update: Any, begins: Any = None) -> Any:
    axis = attributes.get("axis", -2) % past.ndim
    batch, length = past.shape[0], update.shape[axis]
    begin = xp.zeros(batch, np.int64) if begins is None else xp.asarray(begins)
    rows = begin[:, None] + xp.arange(length)[None]
    if attributes.get("mode", "linear") == "circular":
        rows = rows % past.shape[axis]
    shape = [batch if place == 0 else length if place == axis else 1 for place in range(past.ndim)]
    index = [
        rows.reshape(shape) if place == axis else _range(xp, size, place, past.ndim)
        for place, size in enumerate(update.shape)
    ]
    return _put(xp, past, tuple(index), update, "none")


@op("OneHot", host_inputs=(1,))
def _one_hot(xp: Any, attributes: Attributes, dims: Any, indices: Any, depth: Any, values: Any) -> Any:
    count, axis = int(np.asarray(depth).reshape(())), attributes.get("axis", -1)
    codes = xp.asarray(indices).astype(np.int64)
    inside = xp.where(codes < 0, codes + count, codes)
    axis = axis % (codes.ndim + 1)
    hot = xp.expand_dims(inside, axis) == _range(xp, count, axis, codes.ndim + 1)
    pair = xp.asarray(values)
    return xp.where(hot, pair[1], pair[0])


@op("EyeLike")
def _eye_like(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return xp.eye(*dims[0], k=attributes.get("k", 0))


@op("Trilu", host_inputs=(1,))
def _trilu(xp: Any, attributes: Attributes, dims: Any, x: Any, k: Any = None) -> Any:
    offset = 0 if k is None else int(np.asarray(k).reshape(()))
    rows, columns = _range(xp, x.shape[-2], 0, 2), _range(xp, x.shape[-1], 1, 2)
    kept = columns - rows >= offset if attributes.get("upper", 1) else columns - rows <= offset
    return xp.where(kept, x, xp.zeros_like(x))


@op("ReverseSequence")
def _reverse_sequence(xp: Any, attributes: Attributes, dims: Any, x: Any, lengths: Any) -> Any:
    time = attributes.get("time_axis", 0)
    size, steps = x.shape[time], _range(xp, x.shape[time], time, 2)
    counts = xp.asarray(lengths).reshape([1 if axis == time else -1 for axis in range(2)])
    sources = xp.where(counts < 0, counts - size, xp.where(steps < counts, counts - 1 - steps, steps))
    rows = places(xp, sources, size).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    return x[_along(xp, xp.broadcast_to(rows, x.shape), time)]


def _range(xp: Any, size: int, axis: int, rank: int) -> Any:
    """0, 1, … along an axis."""
    return xp.arange(size).reshape([-1 if place == axis else 1 for place in range(rank)])


def _along(xp: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    """An index whose positions along an axis are given for each element."""
    return tuple(
        indices if place == axis else _range(xp, size, place, indices.ndim) for place, size in enumerate(indices.shape)
    )


def _nd_index(xp: Any, indices: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """The last axis of indices as an index of the first axes."""
    return tuple(places(xp, indices[..., place], sizes[place]) for place in range(indices.shape[-1]))


def _put(xp: Any, x: Any, index: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    result = x.copy()
    if reduction == "none":
        result[index] = updates
        return result
    values = xp.asarray(updates)
    if reduction == "mul":
        return _multiplied(xp, result, xp.arange(x.size).reshape(x.shape)[index].ravel(), values.ravel())
    {"add": xp.add, "max": xp.maximum, "min": xp.minimum}[reduction].at(result, index, values)
    return result


def _multiplied(xp: Any, x: Any, places: Any, factors: Any) -> Any:
    """Multiply values by factors at places that may come several times, for which CuPy has no function.

    Places are sorted; a value then gathers the factors of its place over distances of 1, 2, 4, ….
    """
    order = xp.argsort(places)
    places, factors = places[order], factors[order]
    distance = 1
    while distance < len(places):
        same = places[distance:] == places[:-distance]
        gathered = xp.where(same, factors[distance:] * factors[:-distance], factors[distance:])
        factors = xp.concatenate([factors[:distance], gathered])
        distance *= 2
    last = xp.searchsorted(places, places, side="right") - 1
    flat = x.ravel()
    flat[places] = flat[places] * factors[last]
    return flat.reshape(x.shape)
