"""Pools and convolutions for which the engine has no kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .quantization import centered, requantized
from .table import Attributes, op


@dataclass(frozen=True)
class Windows:
    """Kernel, strides, dilations and pads of an operator, one number per spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, attributes: Attributes, kernel: Sequence[int], sizes: Sequence[int], outputs: Sequence[int]) -> Windows:
        """The windows of a node; pads for ``auto_pad`` and ``ceil_mode`` are computed from the dims."""
        rank = len(kernel)
        strides, dilations = (tuple(attributes.get(name, (1,) * rank)) for name in ("strides", "dilations"))
        pads = tuple(attributes.get("pads", (0,) * (2 * rank)))
        mode = attributes.get("auto_pad", "NOTSET")
        reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(outputs, strides, kernel, dilations, strict=True)]
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            rest = [max(0, end - size) for end, size in zip(reach, sizes, strict=True)]
            pads = tuple(all_ // 2 + (all_ % 2 if mode == "SAME_LOWER" else 0) for all_ in rest) + (0,) * rank
        elif mode == "VALID":
            pads = (0,) * (2 * rank)
        ends = tuple(max(0, end - size - begin) for end, size, begin in zip(reach, sizes, pads, strict=False))
        return cls(tuple(kernel), strides, dilations, pads[:rank], ends)

    def room(self, axis: int) -> tuple[int, int]:
        """Values before and behind those of the input along an axis."""
        return self.begins[axis], self.ends[axis]

    def padded(self, xp: Any, x: Any, value: Any) -> Any:
        """The input with room for all windows."""
        room = [(0, 0), (0, 0), *zip(self.begins, self.ends, strict=True)]
        return xp.pad(x, room, constant_values=value) if any(map(any, room)) else x

    def counts(
        self, attributes: Attributes, sizes: Sequence[int], outputs: Sequence[int]
    ) -> list[npt.NDArray[np.int64]]:
        """How many positions of each window count for a mean, along each axis; the product is that of the whole window.

        With ``count_include_pad`` padding counts too, but not what ``ceil_mode`` reaches behind it.
        """
        is_given, include = attributes.get("auto_pad", "NOTSET") == "NOTSET", attributes.get("count_include_pad", 0)
        pads = tuple(attributes.get("pads", (0,) * (2 * len(sizes))))
        ends = pads[len(sizes) :] if is_given else self.ends
        counts = []
        for axis, (size, count) in enumerate(zip(sizes, outputs, strict=True)):
            low, high = (-self.begins[axis], size + ends[axis]) if include else (0, size)
            first = np.arange(count)[:, None] * self.strides[axis] - self.begins[axis]
            places = first + np.arange(self.kernel[axis]) * self.dilations[axis]
            counts.append(((places >= low) & (places < high)).sum(1))
        return counts

    def taps(self, x: Any, outputs: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Each position in the window, and what all windows have there."""
        for place in itertools.product(*map(range, self.kernel)):
            steps = zip(place, self.dilations, self.strides, outputs, strict=True)
            yield place, x[(..., *(slice(p * d, p * d + (o - 1) * s + 1, s) for p, d, s, o in steps))]


@op("MaxPool")
def _max_pool(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    window, outputs = Windows.of(attributes, attributes["kernel_shape"], x.shape[2:], dims[0][2:]), dims[0][2:]
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    best = None
    for _, part in window.taps(window.padded(xp, x, lowest), outputs):
        best = part if best is None else xp.maximum(best, part)
    if len(dims) == 1:
        return best
    area, rank = math.prod(x.shape[2:]), x.ndim - 2
    order = range(rank) if not attributes.get("storage_order", 0) else range(rank - 1, -1, -1)
    number = xp.zeros(x.shape[2:], np.int64)
    factor = 1
    for axis in reversed(order):
        along = [-1 if place == axis else 1 for place in range(rank)]
        number = number + xp.arange(x.shape[2 + axis]).reshape(along) * factor
        factor *= x.shape[2 + axis]
    numbers = xp.broadcast_to(number, x.shape)
    index = None
    taps = window.taps(window.padded(xp, numbers, -1), outputs)
    for (_, part), (_, place) in zip(window.taps(window.padded(xp, x, lowest), outputs), taps, strict=True):
        hit = ((part == best) | (part != part)) & (place >= 0)  # what is not a number is the largest
        index = xp.where(hit, place, -1) if index is None else xp.where((index < 0) & hit, place, index)
    images = xp.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * rank)
    return [best, index + images * area]


@op("AveragePool")
def _average_pool(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    window, outputs = Windows.of(attributes, attributes["kernel_shape"], x.shape[2:], dims[0][2:]), dims[0][2:]
    sums, counted = sum(part for _, part in window.taps(window.padded(xp, x, 0), outputs)), np.ones((), np.float32)
    for counts in window.counts(attributes, x.shape[2:], outputs):
        counted = counted[..., None] * counts.astype(np.float32)
    return sums / xp.asarray(counted)


@op("LpPool")
def _lp_pool(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    window, p = Windows.of(attributes, attributes["kernel_shape"], x.shape[2:], dims[0][2:]), attributes.get("p", 2)
    return sum(part for _, part in window.taps(window.padded(xp, xp.abs(x) ** p, 0), dims[0][2:])) ** np.float32(1 / p)


def _over_space(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool")
def _global_average(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return x.mean(axis=_over_space(x), keepdims=True)


@op("GlobalMaxPool")
def _global_max(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    return x.max(axis=_over_space(x), keepdims=True)


@op("GlobalLpPool")
def _global_lp(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    p = attributes.get("p", 2)
    return (xp.abs(x) ** p).sum(axis=_over_space(x), keepdims=True) ** np.float32(1 / p)


@op("Conv", capturable=False)
def _conv(xp: Any, attributes: Attributes, dims: Any, x: Any, weights: Any, bias: Any = None) -> Any:
    sums = _correlate(xp, attributes, dims[0], x, xp.asarray(weights))
    return sums if bias is None else sums + xp.asarray(bias).reshape(-1, *[1] * (x.ndim - 2))


@op("ConvInteger", capturable=False)
def _conv_integer(
    xp: Any, attributes: Attributes, dims: Any, x: Any, weights: Any, x_zero: Any = None, w_zero: Any = None
) -> Any:
    return _correlate(xp, attributes, dims[0], centered(xp, x, x_zero, -1), _weights(xp, weights, w_zero))


@op("QLinearConv", capturable=False)
def _qlinear_conv(
    xp: Any, attributes: Attributes, dims: Any, x: Any, x_scale: Any, x_zero: Any, weights: Any, w_scale: Any, w_zero: Any,
    y_scale: Any, y_zero: Any, bias: Any = None,
) -> Any:  # fmt: skip
    along = (-1, *[1] * (x.ndim - 2))
    sums = _correlate(xp, attributes, dims[0], centered(xp, x, x_zero, -1), _weights(xp, weights, w_zero))
    if bias is not None:
        sums = sums + xp.asarray(bias).reshape(along)
    scales = (xp.asarray(scale).astype(np.float32) for scale in (x_scale, w_scale, y_scale))
    x_step, w_step, y_step = (scale.reshape(along) if scale.size > 1 else scale.reshape(()) for scale in scales)
    return requantized(xp, sums * (x_step * w_step / y_step), y_zero)


@op("ConvTranspose", capturable=False)
def _conv_transpose(xp: Any, attributes: Attributes, dims: Any, x: Any, weights: Any, bias: Any = None) -> Any:
    """Every value spreads over the windows that it lies in: a full output, of which the pads are cut off."""
    weights = xp.asarray(weights)
    rank, groups, n = x.ndim - 2, attributes.get("group", 1), x.shape[0]
    strides, dilations = (tuple(attributes.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    kernel, filters = weights.shape[2:], weights.shape[1]
    full = [(s - 1) * t + (k - 1) * d + 1 for s, t, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)]
    extra = tuple(attributes.get("output_padding", (0,) * rank))
    wanted = dims[0][2:]
    begins = tuple(attributes.get("pads", (0,) * (2 * rank)))[:rank]
    if (mode := attributes.get("auto_pad", "NOTSET")) != "NOTSET" or "output_shape" in attributes:
        rest = [max(0, size + e - w) for size, e, w in zip(full, extra, wanted, strict=True)]
        begins = tuple(r // 2 if mode == "SAME_UPPER" else r - r // 2 for r in rest)
    room = [max(size, b + w) for size, b, w in zip(full, begins, wanted, strict=True)]
    y = xp.zeros((n, groups * filters, *room), x.dtype)
    grouped = x.reshape(n, groups, -1, math.prod(x.shape[2:]))
    window = Windows(tuple(kernel), strides, dilations, (0,) * rank, (0,) * rank)
    split = weights.reshape(groups, -1, filters, math.prod(kernel))
    for number, (_, part) in enumerate(window.taps(y, x.shape[2:])):
        made = xp.matmul(split[:, :, :, number].transpose(0, 2, 1)[None], grouped)
        part += made.reshape(part.shape)
    y = y[(..., *(slice(b, b + w) for b, w in zip(begins, wanted, strict=True)))]
    return y if bias is None else y + xp.asarray(bias).reshape(-1, *[1] * rank)


@op("Col2Im", host_inputs=(1, 2))
def _col2im(xp: Any, attributes: Attributes, dims: Any, x: Any, sizes: Any, block: Any) -> Any:
    kernel, rank = tuple(map(int, block)), len(block)
    strides, dilations = (tuple(attributes.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    pads = tuple(attributes.get("pads", (0,) * (2 * rank)))
    room = [int(s) + a + b for s, a, b in zip(sizes, pads, pads[rank:], strict=False)]
    counts = [(size - (k - 1) * d - 1) // s + 1 for size, k, d, s in zip(room, kernel, dilations, strides, strict=True)]
    n, c = dims[0][:2]
    y, parts = xp.zeros((n, c, *room), x.dtype), x.reshape(n, c, math.prod(kernel), *counts)
    window = Windows(kernel, strides, dilations, (0,) * rank, (0,) * rank)
    for number, (_, part) in enumerate(window.taps(y, counts)):
        part += parts[:, :, number]
    return y[(..., *(slice(b, b + int(s)) for b, s in zip(pads, sizes, strict=False)))]


@op("MaxUnpool", host_inputs=(2,))
def _max_unpool(xp: Any, attributes: Attributes, dims: Any, x: Any, indices: Any, sizes: Any = None) -> Any:
    y = xp.zeros(math.prod(dims[0]), x.dtype)
    places = xp.asarray(indices).reshape(-1)
    if sizes is not None:  # positions are those of the tensor that the pool would give without the sizes
        rank = x.ndim - 2
        pads, strides = attributes.get("pads", (0,) * (2 * rank)), attributes.get("strides", (1,) * rank)
        inferred = [
            (s - 1) * t - a - b + k
            for s, t, a, b, k in zip(x.shape[2:], strides, pads, pads[rank:], attributes["kernel_shape"], strict=False)
        ]
        places = xp.ravel_multi_index(xp.unravel_index(places, (*x.shape[:2], *inferred)), dims[0])
    y[places] = x.reshape(-1)
    return y.reshape(dims[0])


def _weights(xp: Any, weights: Any, zero: Any) -> Any:
    values = xp.asarray(weights).astype(np.int32)
    if zero is None:
        return values
    offset = xp.asarray(zero).astype(np.int32)
    return values - offset.reshape(-1, *[1] * (values.ndim - 1)) if offset.size > 1 else values - offset.reshape(())


def _correlate(xp: Any, attributes: Attributes, dims: Sequence[int], x: Any, weights: Any) -> Any:
    """A convolution without bias, one product of matrices for each position in the window."""
    n, k, outputs, groups = x.shape[0], weights.shape[0], dims[2:], attributes.get("group", 1)
    window = Windows.of(attributes, weights.shape[2:], x.shape[2:], outputs)
    sums = xp.zeros((n, groups, k // groups, math.prod(outputs)), x.dtype)
    split = weights.reshape(groups, k // groups, -1, math.prod(weights.shape[2:]))
    for number, (_, part) in enumerate(window.taps(window.padded(xp, x, 0), outputs)):
        sums += xp.matmul(split[None, :, :, :, number], part.reshape(n, groups, -1, math.prod(outputs)))
    return sums.reshape(dims)
