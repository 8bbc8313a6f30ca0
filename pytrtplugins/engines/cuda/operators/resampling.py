"""Resampling operators: Resize, GridSample, RoiAlign, DeformConv and the like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .table import Attributes, op

__all__ = ["ResizedAxis", "nearest_places", "resized_axes", "weighted_places"]


@dataclass(frozen=True)
class ResizedAxis:
    """An axis along which a Resize changes something.

    Attributes:
        axis: Which.
        scale: Outputs for each input.
        positions: Where each output lies among the inputs.
    """

    axis: int
    scale: float
    positions: np.ndarray[Any, Any]


def resized_axes(
    attributes: Attributes, dims: Sequence[int], wanted: Sequence[int], roi: Any, scales: Any, sizes: Any
) -> Iterator[ResizedAxis]:
    """The axes of a Resize, one after the other.

    Args:
        attributes: Its attributes.
        dims: The input's.
        wanted: The output's.
        roi: Its second input; None, or no values, where it is left out.
        scales: Its third.
        sizes: Its fourth.
    """
    axes = [int(axis) % len(dims) for axis in attributes.get("axes", range(len(dims)))]
    region = None if roi is None or not np.size(roi) else np.asarray(roi, np.float64)
    given = None if scales is None or not np.size(scales) else np.asarray(scales, np.float64)
    if given is None and attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        ratios = [int(size) / dims[axis] for size, axis in zip(sizes, axes, strict=True)]
        one = min(ratios) if attributes["keep_aspect_ratio_policy"] == "not_larger" else max(ratios)
        given = np.full(len(axes), one)
    kind = (
        np.float32 if attributes.get("mode", "nearest") == "nearest" else np.float64
    )  # ties are those of onnxruntime, in float32
    place = attributes.get("coordinate_transformation_mode", "half_pixel")
    for index, axis in enumerate(axes):
        old, new = dims[axis], wanted[axis]
        scale = kind(new) / kind(old) if given is None else kind(given[index])
        span = (0.0, 1.0) if region is None else (region[index], region[index + len(axes)])
        if scale != 1 or new != old or (place == "tf_crop_and_resize" and tuple(span) != (0.0, 1.0)):
            yield ResizedAxis(axis, float(scale), _positions(place, old, new, scale, span))


def nearest_places(attributes: Attributes, old: int, positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which input each output is."""
    places = _NEAREST[attributes.get("nearest_mode", "round_prefer_floor")](positions)
    return np.asarray(np.clip(places, 0, old - 1), np.int64)


@op("Resize", host_inputs=(1, 2, 3))
def _resize(
    xp: Any, attributes: Attributes, dims: Any, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None
) -> Any:
    """Axis by axis: each output is a sum of a few inputs, each times its weight; nearest: one of them."""
    dtype = x.dtype
    for each in resized_axes(attributes, x.shape, dims[0], roi, scales, sizes):
        axis, old, at_input = each.axis, x.shape[each.axis], each.positions
        mode = attributes.get("mode", "nearest")
        if mode == "nearest":
            moved = xp.take(x, xp.asarray(nearest_places(attributes, old, at_input)), axis=axis)
        else:
            along = [-1 if place == axis else 1 for place in range(x.ndim)]
            moved = sum(
                xp.take(x, xp.asarray(index), axis=axis) * xp.asarray(factor).reshape(along)
                for index, factor in weighted_places(attributes, mode, at_input, old, each.scale)
            )
        if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            outside = (at_input < 0) | (at_input > old - 1)
            along = xp.asarray(outside).reshape([-1 if place == axis else 1 for place in range(x.ndim)])
            moved = xp.where(along, np.float32(attributes.get("extrapolation_value", 0.0)), moved)
        x = moved
    if dtype.kind not in "iu" or attributes.get("mode") != "cubic":
        return x
    return xp.clip(xp.rint(x), np.iinfo(dtype).min, np.iinfo(dtype).max)


@op("Upsample", host_inputs=(1,))
def _upsample(xp: Any, attributes: Attributes, dims: Any, x: Any, scales: Any = None) -> Any:
    mode = {**attributes, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return _resize(xp, mode, dims, x, None, attributes.get("scales") if scales is None else scales)


_NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda p: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: np.floor(p + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _positions(mode: str, old: int, new: int, scale: Any, span: tuple[float, float]) -> Any:
    """Where each output lies among the inputs, in the type of the scale."""
    out = np.arange(new, dtype=scale.dtype)
    if mode == "align_corners":
        length = scale * old
        return out * (old - 1) / (length - 1) if length != 1 else 0 * out
    if mode == "asymmetric":
        return out / scale
    if mode == "tf_half_pixel_for_nn":
        return (out + 0.5) / scale
    if mode == "tf_crop_and_resize":
        begin, end = map(scale.dtype.type, span)
        if new > 1:
            return begin * (old - 1) + out * (end - begin) * (old - 1) / (new - 1)
        return 0 * out + 0.5 * (begin + end) * (old - 1)
    if mode == "pytorch_half_pixel" and new == 1:
        return 0 * out
    if mode == "half_pixel_symmetric":
        length = scale * old
        return old / 2 * (1 - new / length) + (out + 0.5) / scale - 0.5
    return (out + 0.5) / scale - 0.5


def weighted_places(
    attributes: Attributes, mode: str, positions: np.ndarray[Any, Any], old: int, scale: float
) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """For each input that an output is made of: which it is, and its weight, of all outputs."""
    shrink = min(scale, 1.0) if attributes.get("antialias") else 1.0
    reach = (1 if mode == "linear" else 2) / shrink
    if attributes.get("antialias"):
        first, count = np.ceil(positions - reach), math.floor(2 * reach) + 1
    else:
        first, count = np.floor(positions) - (0 if mode == "linear" else 1), 2 if mode == "linear" else 4
    places = first[:, None] + np.arange(count)
    distance = np.abs(places - positions[:, None]) * shrink
    factors = (
        np.maximum(0, 1 - distance) if mode == "linear" else _cubic(distance, attributes.get("cubic_coeff_a", -0.75))
    )
    if attributes.get("exclude_outside"):
        factors = np.where((places >= 0) & (places < old), factors, 0)
    if attributes.get("exclude_outside") or attributes.get("antialias"):
        factors = factors / factors.sum(axis=1, keepdims=True)
    inside = np.clip(places, 0, old - 1).astype(np.int64)
    return [(inside[:, tap], factors[:, tap].astype(np.float32)) for tap in range(count)]


def _cubic(d: Any, a: float) -> Any:
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


@op("GridSample")
def _grid_sample(xp: Any, attributes: Attributes, dims: Any, x: Any, grid: Any) -> Any:
    rank, corners = x.ndim - 2, bool(attributes.get("align_corners"))
    mode, padding = attributes.get("mode", "linear"), attributes.get("padding_mode", "zeros")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    sizes, points = x.shape[2:], []
    for axis, size in enumerate(sizes):
        unit = grid[..., rank - 1 - axis]
        place = (unit + 1) / 2 * (size - 1) if corners else ((unit + 1) * size - 1) / 2
        if mode != "cubic":
            place = _folded(xp, place, size, padding, corners)
        points.append(place)
    if mode == "nearest":
        return _read(xp, x, [xp.rint(place) for place in points], padding, corners)
    count, before = (2, 0) if mode == "linear" else (4, 1)
    firsts = [xp.floor(place) for place in points]
    total: Any = 0
    for steps in np.ndindex(*(count,) * rank):
        places = [first + (step - before) for first, step in zip(firsts, steps, strict=True)]
        factor: Any = 1
        for place, point in zip(places, points, strict=True):
            d = xp.abs(point - place)
            a = -0.75
            factor = factor * (
                xp.maximum(1 - d, 0)
                if mode == "linear"
                else xp.where(d <= 1, ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a)
            )
        total = total + _read(xp, x, places, padding, corners) * xp.expand_dims(factor, 1)
    return total


def _folded(xp: Any, place: Any, size: int, padding: str, corners: bool) -> Any:
    """Places outside, brought back inside as the mode wants."""
    if padding == "border":
        return xp.clip(place, 0, size - 1)
    if padding != "reflection":
        return place
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    length = high - low
    if length == 0:
        return xp.zeros_like(place)
    turned = xp.abs(place - low) % (2 * length)
    return xp.clip(xp.where(turned > length, 2 * length - turned, turned) + low, 0, size - 1)


def _read(xp: Any, x: Any, places: Sequence[Any], padding: str, corners: bool) -> Any:
    """X at whole places, [N, C, …]; 0 outside unless the padding says otherwise."""
    sizes = x.shape[2:]
    places = [_folded(xp, place, size, padding, corners) for place, size in zip(places, sizes, strict=True)]
    inside: Any = True
    for place, size in zip(places, sizes, strict=True):
        inside = inside & (place >= 0) & (place <= size - 1)
    index = [xp.clip(xp.rint(place), 0, size - 1).astype(np.int64) for place, size in zip(places, sizes, strict=True)]
    images = xp.arange(x.shape[0]).reshape(-1, *[1] * (index[0].ndim - 1))
    found = xp.moveaxis(x, 1, -1)[(images, *index)]
    return xp.moveaxis(xp.where(xp.expand_dims(inside, -1), found, xp.zeros_like(found)), -1, 1)


@op("RoiAlign")
def _roi_align(xp: Any, attributes: Attributes, dims: Any, x: Any, rois: Any, images: Any) -> Any:
    """Each bin is the mean, or the largest, of points spread evenly over it; each point is read between four pixels."""
    _, _, oh, ow = dims[0]
    h, w = x.shape[2:]
    half = 0.5 if attributes.get("coordinate_transformation_mode", "half_pixel") == "half_pixel" else 0.0
    boxes = rois.astype(np.float32) * np.float32(attributes.get("spatial_scale", 1.0)) - half
    left, top, right, bottom = (boxes[:, place] for place in range(4))
    width, height = right - left, bottom - top
    if not half:
        width, height = xp.maximum(width, 1), xp.maximum(height, 1)
    grids = [_grid(xp, attributes, side, bins) for side, bins in ((height, oh), (width, ow))]
    (ys, below), (xs, beside) = (
        _points(xp, *line, *grid) for line, grid in zip(((top, height, oh), (left, width, ow)), grids, strict=True)
    )
    rows, columns = below.shape[-1], beside.shape[-1]
    ys, xs = ys[:, :, None], xs[:, None, :]
    outside = (ys < -1) | (ys > h) | (xs < -1) | (xs > w)
    y, z = xp.clip(ys, 0, h - 1), xp.clip(xs, 0, w - 1)
    y0, x0 = xp.floor(y), xp.floor(z)
    y1, x1 = xp.minimum(y0 + 1, h - 1), xp.minimum(x0 + 1, w - 1)
    fy, fx = y - y0, z - x0
    source = xp.moveaxis(x, 1, -1)
    image = xp.asarray(images).astype(np.int64).reshape(-1, 1, 1)
    corners = []
    for a, wa in ((y0, 1 - fy), (y1, fy)):
        for b, wb in ((x0, 1 - fx), (x1, fx)):
            values = source[image, a.astype(np.int64), b.astype(np.int64)]
            corners.append(values * xp.where(outside, 0, wa * wb)[..., None])
    shape = (len(rois), oh, rows, ow, columns, x.shape[1])
    inside = below[:, None, :, None, None, None] & beside[:, None, None, None, :, None]
    if attributes.get("mode", "avg") == "max":
        best = corners[0]
        for corner in corners[1:]:
            best = xp.maximum(best, corner)
        found = xp.where(inside, best.reshape(shape), -np.inf).max(axis=(2, 4))
        return xp.moveaxis(xp.where(xp.isfinite(found), found, 0), -1, 1)
    count = xp.maximum(inside.sum(axis=(2, 4)), 1)
    return xp.moveaxis(xp.where(inside, sum(corners).reshape(shape), 0).sum(axis=(2, 4)) / count, -1, 1)


def _grid(xp: Any, attributes: Attributes, side: Any, bins: int) -> tuple[Any, int]:
    """[rois]: points of a bin along an axis, and the most; as many as the bin has pixels, if no number is said."""
    if ratio := attributes.get("sampling_ratio", 0):
        return xp.full(side.shape, ratio), ratio
    counts = xp.ceil(side / bins).astype(np.int64)
    return counts, max(int(counts.max()), 1) if counts.size else 1


def _points(xp: Any, first: Any, side: Any, bins: int, counts: Any, most: int) -> tuple[Any, Any]:
    """[rois, bins · most]: points of all bins along an axis; [rois, most]: which of them there are."""
    taps, size = xp.arange(most, dtype=np.float32), (side / np.float32(bins))[:, None, None]
    begins = first[:, None, None] + xp.arange(bins, dtype=np.float32)[:, None] * size
    places = begins + (taps + np.float32(0.5)) * size / xp.maximum(counts, 1).astype(np.float32)[:, None, None]
    return places.reshape(len(first), -1), taps < counts[:, None]


@op("DeformConv", capturable=False)
def _deform_conv(
    xp: Any, attributes: Attributes, dims: Any, x: Any, weights: Any, offsets: Any, bias: Any = None, mask: Any = None
) -> Any:
    """A convolution each of whose taps is read where an offset says, between four pixels."""
    weights, (n, c), (oh, ow) = xp.asarray(weights), x.shape[:2], dims[0][2:]
    (kh, kw), parts, groups = weights.shape[2:], attributes.get("offset_group", 1), attributes.get("group", 1)
    (sh, sw), (dh, dw) = (tuple(attributes.get(name, (1, 1))) for name in ("strides", "dilations"))
    top, left = tuple(attributes.get("pads", (0, 0, 0, 0)))[:2]
    moves = offsets.reshape(n, parts, kh * kw, 2, oh, ow)
    factors = None if mask is None else mask.reshape(n, parts, kh * kw, oh, ow)
    rows, columns = xp.arange(oh)[:, None] * sh - top, xp.arange(ow)[None] * sw - left
    pixels = x.reshape(n * parts, c // parts, *x.shape[2:])
    split = weights.reshape(groups, -1, weights.shape[1], kh * kw)
    sums: Any = 0
    for tap in range(kh * kw):
        ys = (rows + tap // kw * dh + moves[:, :, tap, 0]).reshape(n * parts, oh, ow)
        xs = (columns + tap % kw * dw + moves[:, :, tap, 1]).reshape(n * parts, oh, ow)
        found = _between(xp, pixels, ys, xs)
        if factors is not None:
            found = found * factors[:, :, tap].reshape(n * parts, 1, oh, ow)
        sums = sums + xp.matmul(split[None, :, :, :, tap], found.reshape(n, groups, -1, oh * ow))
    result = sums.reshape(dims[0])
    return result if bias is None else result + xp.asarray(bias).reshape(-1, 1, 1)


def _between(xp: Any, x: Any, ys: Any, xs: Any) -> Any:
    """X at places between pixels, [N, C, …]; 0 outside."""
    y0, x0 = xp.floor(ys), xp.floor(xs)
    return sum(
        _read(xp, x, [y0 + a, x0 + b], "zeros", True)
        * xp.expand_dims((1 - xp.abs(ys - y0 - a)) * (1 - xp.abs(xs - x0 - b)), 1)
        for a in (0, 1)
        for b in (0, 1)
    )
