"""Operators that read an image between its pixels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...tensor import Array

__all__ = ["SAMPLING_OPS"]

Attributes = Mapping[str, Any]

_NEAREST: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda place: np.ceil(place - np.float32(0.5)),
    "round_prefer_ceil": lambda place: np.floor(place + np.float32(0.5)),
}


def _resize(
    a: Attributes, x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Array:
    """One axis after the other; places are float32, as in onnxruntime, which lets ties be ties within rounding."""
    dtype, axes = x.dtype, [axis % x.ndim for axis in a.get("axes", range(x.ndim))]
    for k, (axis, factor, new) in enumerate(zip(axes, *_factors(a, x, axes, scales, sizes), strict=True)):
        span = (0.0, 1.0) if roi is None or not roi.size else (float(roi[k]), float(roi[k + len(axes)]))
        mode = a.get("coordinate_transformation_mode", "half_pixel")
        if factor != 1 or new != x.shape[axis] or (mode == "tf_crop_and_resize" and span != (0.0, 1.0)):
            x = _resized(a, x, axis, _places(mode, x.shape[axis], new, factor, span), factor)
    if dtype.kind in "iu" and a.get("mode", "nearest") == "cubic":
        # as onnx.reference; onnxruntime has no such mode, and cuts off the fractions of linear sums
        x = np.clip(np.rint(x), np.iinfo(dtype).min, np.iinfo(dtype).max)
    return x if x.dtype == dtype else x.astype(dtype)


def _factors(
    a: Attributes, x: Array, axes: Sequence[int], scales: Array | None, sizes: Array | None
) -> tuple[Sequence[Any], Sequence[int]]:
    """How much longer each axis becomes, in float32, and how long it is then."""
    old = np.array([x.shape[axis] for axis in axes], np.float32)
    if sizes is None or not sizes.size:
        factors = np.ones_like(old) if scales is None else scales.astype(np.float32)
        return list(factors), [int(size) for size in old * factors]
    factors, policy = sizes.astype(np.float32) / old, a.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return list(factors), [int(size) for size in sizes]
    factors[:] = factors.min() if policy == "not_larger" else factors.max()
    return list(factors), [int(np.floor(size + np.float32(0.5))) for size in old * factors]


def _places(mode: str, old: int, new: int, factor: Any, span: Sequence[Any]) -> Array:
    """Where each output lies among the inputs of an axis."""
    out, half = np.arange(new, dtype=np.float32), np.float32(0.5)
    if mode == "asymmetric":
        return out / factor
    if mode == "align_corners":
        length = np.float32(factor * np.float32(old))  # perhaps a fraction
        return out * np.float32(old - 1) / (length - 1) if length != 1 else out * 0
    if mode == "tf_crop_and_resize":
        begin, end = map(np.float32, span)
        if new == 1:
            return half * (begin + end) * np.full(1, old - 1, np.float32)
        return begin * np.float32(old - 1) + out * (end - begin) * np.float32(old - 1) / np.float32(new - 1)
    if mode == "tf_half_pixel_for_nn":
        return (out + half) / factor
    if mode == "pytorch_half_pixel" and new == 1:
        return out * 0
    places = (out + half) / factor - half
    if mode == "half_pixel_symmetric":
        places = np.float32(old / 2) * (1 - np.float32(new) / (factor * np.float32(old))) + places
    return places


def _resized(a: Attributes, x: Array, axis: int, places: Array, factor: Any) -> Array:
    """An axis whose elements are read at places; each is a sum of its neighbours, times their weights, in float64."""
    old, mode = x.shape[axis], a.get("mode", "nearest")
    along = [-1 if k == axis else 1 for k in range(x.ndim)]
    if mode == "nearest":
        sources = _NEAREST[a.get("nearest_mode", "round_prefer_floor")](places)
        result = np.take(x, np.clip(sources, 0, old - 1).astype(np.int64), axis=axis)
    else:
        result = sum(
            np.take(x, np.clip(source, 0, old - 1), axis=axis) * weight.reshape(along)
            for source, weight in zip(*_neighbours(a, mode, places.astype(np.float64), old, float(factor)), strict=True)
        )
    if a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        outside = ((places < 0) | (places > old - 1)).reshape(along)
        result = np.where(outside, np.asarray(a.get("extrapolation_value", 0.0), result.dtype), result)
    return np.asarray(result)


def _neighbours(a: Attributes, mode: str, places: Array, old: int, factor: float) -> tuple[Array, Array]:
    """[neighbours, outputs]: which inputs each output is made of, and their weights."""
    reach, stretch = (1 if mode == "linear" else 2), min(factor, 1.0) if a.get("antialias") else 1.0
    wide = int(np.ceil(reach / stretch))
    sources = np.floor(places).astype(np.int64) + np.arange(1 - wide, wide + 1)[:, None]
    distances = np.abs(sources - places) * stretch
    weights = np.maximum(1 - distances, 0) if mode == "linear" else _cubic(distances, a.get("cubic_coeff_a", -0.75))
    if a.get("exclude_outside"):
        weights = np.where((sources >= 0) & (sources < old), weights, 0)
    if a.get("exclude_outside") or a.get("antialias"):
        weights = weights / weights.sum(axis=0)
    return sources, weights


def _cubic(d: Array, a: float) -> Array:
    """Keys' convolution kernel of a distance."""
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _grid_sample(a: Attributes, x: Array, grid: Array) -> Array:
    """[N, C, …] at places between -1 and 1, [N, …, rank], the last axis of the image first."""
    mode, padding = a.get("mode", "linear"), a.get("padding_mode", "zeros")
    mode, corners = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode), bool(a.get("align_corners", 0))
    sizes = x.shape[2:]
    points = []
    for unit, size in zip(np.moveaxis(grid, -1, 0)[::-1], sizes, strict=True):
        one = unit.dtype.type(1)
        place = (unit + one) / 2 * (size - 1) if corners else ((unit + one) * size - one) / 2
        points.append(place if mode == "cubic" else _folded(place, size, padding, corners))
    if mode == "nearest":
        return _read(x, [np.rint(point) for point in points], padding, corners).astype(x.dtype)
    steps = range(2) if mode == "linear" else range(-1, 3)
    result = np.zeros(())
    for step in itertools.product(steps, repeat=len(points)):
        places = [np.floor(point) + offset for point, offset in zip(points, step, strict=True)]
        distances = [np.abs(point.astype(np.float64) - place) for point, place in zip(points, places, strict=True)]
        weights = [np.maximum(1 - d, 0) if mode == "linear" else _cubic(d, -0.75) for d in distances]
        weight = np.prod(np.broadcast_arrays(*weights), axis=0)
        result = result + _read(x, places, padding, corners) * weight[:, None]
    return result.astype(x.dtype)


def _folded(place: Array, size: int, padding: str, corners: bool) -> Array:
    """Places outside, brought back inside as the mode wants."""
    if padding == "reflection":
        low, length = (0.0, size - 1.0) if corners else (-0.5, float(size))
        if not length:
            return place * 0
        turned = np.abs(place - low) % (2 * length)
        place = np.where(turned > length, 2 * length - turned, turned) + low
    return place if padding == "zeros" else np.clip(place, 0, size - 1)


def _read(x: Array, places: Sequence[Array], padding: str, corners: bool) -> Array:
    """An image at whole places, [N, C, …]; 0 outside unless the padding says otherwise."""
    folded = [_folded(place, size, padding, corners) for place, size in zip(places, x.shape[2:], strict=True)]
    inside, index = np.ones((), bool), []
    for place, size in zip(folded, x.shape[2:], strict=True):
        inside = inside & (place >= 0) & (place <= size - 1)
        index.append(np.clip(np.nan_to_num(np.rint(place)), 0, size - 1).astype(np.int64))
    images = np.arange(len(x)).reshape(-1, *[1] * (index[0].ndim - 1))
    pixels = np.moveaxis(x, 1, -1)[(images, *index)]
    return np.moveaxis(np.where(inside[..., None], pixels, pixels.dtype.type(0)), -1, 1)


SAMPLING_OPS: dict[str, Callable[..., Any]] = {"GridSample": _grid_sample, "Resize": _resize}
"""Name of an operator → function (attributes, *inputs) → output."""
