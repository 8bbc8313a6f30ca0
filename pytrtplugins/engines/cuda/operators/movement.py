"""Data movement operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....model.slices import bounded_slice
from .table import Attributes, op


@op("Flatten")
def _flatten(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return x.reshape(dims[0])


@op("Reshape", "Squeeze", "Unsqueeze", host_inputs=(1,))
def _to_dims(xp: Any, attributes: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    return x.reshape(dims[0])


@op("Expand", host_inputs=(1,))
def _expand(xp: Any, attributes: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    return xp.broadcast_to(x, dims[0])


@op("Transpose")
def _transpose(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return x.transpose(attributes.get("perm"))


@op("Concat")
def _concat(xp: Any, attributes: Attributes, dims: Any, *values: Any) -> Any:
    return xp.concatenate([xp.asarray(value) for value in values], axis=attributes["axis"])


@op("Split", host_inputs=(1,))
def _split(xp: Any, attributes: Attributes, dims: Any, x: Any, *unused: Any) -> Any:
    axis = attributes.get("axis", 0)
    ends = np.cumsum([shape[axis] for shape in dims])[:-1]
    return xp.split(x, [int(end) for end in ends], axis=axis)


@op("Slice", host_inputs=(1, 2, 3, 4))
def _slice(
    xp: Any, attributes: Attributes, dims: Any, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Any:
    chosen = [slice(None)] * x.ndim
    places = range(len(starts)) if axes is None else axes
    for index, axis in enumerate(places):
        step = 1 if steps is None else int(steps[index])
        chosen[int(axis)] = bounded_slice(x.shape[axis], int(starts[index]), int(ends[index]), step)
    return x[tuple(chosen)]


@op("Pad", host_inputs=(1, 2, 3))
def _pad(xp: Any, attributes: Attributes, dims: Any, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    room = [(0, 0)] * x.ndim
    half = len(pads) // 2
    for index, axis in enumerate(range(x.ndim) if axes is None else axes):
        room[int(axis)] = int(pads[index]), int(pads[index + half])
    inner = tuple(slice(max(0, -a), size - max(0, -b)) for (a, b), size in zip(room, x.shape, strict=True))
    x, room = x[inner], [(max(0, a), max(0, b)) for a, b in room]  # negative ones cut
    mode = attributes.get("mode", "constant")
    if mode == "constant":
        return xp.pad(x, room, constant_values=0 if value is None else np.asarray(value).reshape(()).item())
    return xp.pad(x, room, mode=mode)


@op("Tile", host_inputs=(1,))
def _tile(xp: Any, attributes: Attributes, dims: Any, x: Any, repeats: Any) -> Any:
    return xp.tile(x, [int(count) for count in repeats])


@op("DepthToSpace")
def _depth_to_space(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    n, c, h, w = x.shape
    s = attributes["blocksize"]
    if attributes.get("mode", "DCR") == "DCR":
        parts = x.reshape(n, s, s, c // s**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // s**2, s, s, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(dims[0])


@op("SpaceToDepth")
def _space_to_depth(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    n, c, h, w = x.shape
    s = attributes["blocksize"]
    parts = x.reshape(n, c, h // s, s, w // s, s)
    order = (0, 3, 5, 1, 2, 4) if attributes.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.transpose(order).reshape(dims[0])
