"""Operators that slide a window over an image: convolution, its transpose, and pooling, one place in the window at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...tensor import Array

__all__ = ["WINDOW_OPS", "convolve", "convolve_transposed"]

Attributes = Mapping[str, Any]


def windows(x: Array, kernel: Sequence[int], a: Attributes, fill: float) -> Array:
    """Every window of an image: [N, C, H, W] → [N, C, kh, kw, oh, ow], the border filled with ``fill``.

    So it is with one spatial axis or three.
    """
    strides, dilations = _steps(a, kernel)
    reach = _reach(kernel, dilations)
    pads = _pads(x.shape[2:], reach, strides, a)
    x = np.pad(x, [(0, 0), (0, 0), *_border(pads)], constant_values=x.dtype.type(fill))
    out = [(size - r) // step + 1 for size, r, step in zip(x.shape[2:], reach, strides, strict=True)]
    result = np.empty((*x.shape[:2], *kernel, *out), x.dtype)
    for place in np.ndindex(*kernel):
        result[(slice(None), slice(None), *place)] = x[_under(place, out, strides, dilations)]
    return result


def convolve(
    x: Array, weight: Array, a: Attributes, fill: float = 0.0, matmul: Callable[[Array, Array], Array] = np.matmul
) -> Array:
    """Sums of products in float64: exact for integers below 2⁵³, and for float32 rounded once, at the end.

    Args:
        x: [N, C, H, W].
        weight: [M, C / groups, kh, kw].
        a: The ONNX attributes of Conv.
        fill: Value of the border, the zero point where x holds codes.
        matmul: The product of matrices in float64.

    Returns:
        [N, M, oh, ow], float64, no bias.
    """
    groups, kernel = a.get("group", 1), weight.shape[2:]
    rows = weight.reshape(groups, weight.shape[0] // groups, -1).astype(np.float64)
    outputs = []
    images = x if len(x) else np.zeros((1, *x.shape[1:]), x.dtype)
    for image in images:  # one image at a time bounds the memory for the windows
        views = windows(image[None], kernel, a, fill)[0]
        out = views.shape[1 + len(kernel) :]
        columns = views.reshape(groups, rows.shape[2], -1).astype(np.float64)
        outputs.append(matmul(rows, columns).reshape(weight.shape[0], *out))
    return np.stack(outputs)[: len(x)]


def convolve_transposed(x: Array, weight: Array, a: Attributes) -> Array:
    """What `convolve` reads of a place, written there: sums of products in float64.

    Args:
        x: [N, C, H, W].
        weight: [C, M / groups, kh, kw].
        a: The ONNX attributes of ConvTranspose.

    Returns:
        [N, M, oh, ow], float64, no bias.

    Raises:
        ValueError: the pads cut off more than there is.
    """
    groups, kernel, dims = a.get("group", 1), weight.shape[2:], x.shape[2:]
    strides, dilations = _steps(a, kernel)
    whole = [(d - 1) * s + r for d, s, r in zip(dims, strides, _reach(kernel, dilations), strict=True)]
    pads, out = _transposed_pads(a, dims, whole, strides)
    if min(out) < 0:
        raise ValueError(f"its pads cut off more than there is: the image that it gives would be {list(out)}")
    columns = x.reshape(len(x), groups, x.shape[1] // groups, -1).astype(np.float64)
    rows = weight.reshape(groups, x.shape[1] // groups, weight.shape[1], *kernel).astype(np.float64)
    room = [max(size, low + wanted) for size, low, wanted in zip(whole, pads, out, strict=True)]
    result = np.zeros((len(x), groups * weight.shape[1], *room))
    for place in np.ndindex(*kernel):
        part = np.matmul(rows[(..., *place)].swapaxes(1, 2), columns)
        result[_under(place, dims, strides, dilations)] += part.reshape(*result.shape[:2], *dims)
    inside: Any = (..., *(slice(low, low + size) for low, size in zip(pads, out, strict=True)))
    return result[inside]


def _transposed_pads(
    a: Attributes, dims: Sequence[int], whole: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What ConvTranspose cuts off the low side of each axis, and what it leaves: dims that are said, or those that follow."""
    rank, kind = len(dims), a.get("auto_pad", "NOTSET")
    pads, extra = a.get("pads", [0] * 2 * rank), a.get("output_padding", [0] * rank)
    same = kind in ("SAME_UPPER", "SAME_LOWER")
    out = a.get("output_shape") or ([d * s for d, s in zip(dims, strides, strict=True)] if same else None)
    if out is None:
        pads = [0] * 2 * rank if kind == "VALID" else pads
        ends = zip(whole, extra, pads[:rank], pads[rank:], strict=True)
        return list(pads[:rank]), [size + more - low - high for size, more, low, high in ends]
    cut = [max(size + more - wanted, 0) for size, more, wanted in zip(whole, extra, out, strict=True)]
    return [total // 2 if kind == "SAME_UPPER" else total - total // 2 for total in cut], list(out[-rank:])


def _steps(a: Attributes, kernel: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Strides and dilations."""
    ones = [1] * len(kernel)
    return a.get("strides", ones), a.get("dilations", ones)


def _reach(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    return [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]


def _under(place: Sequence[int], out: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Any:
    """Index of the pixels that lie under one place of the window, for all its positions."""
    begins = [p * d for p, d in zip(place, dilations, strict=True)]
    return (..., *(slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(begins, out, strides, strict=True)))


def _pads(dims: Sequence[int], reach: Sequence[int], strides: Sequence[int], a: Attributes) -> list[int]:
    """Pixels to add on the low side of each axis, then on the high side of each."""
    kind, rank = a.get("auto_pad", "NOTSET"), len(dims)
    pads = list(a.get("pads", [0] * 2 * rank))
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-d // s) - 1) * s + r - d, 0) for d, r, s in zip(dims, reach, strides, strict=True)]
        low = [t // 2 if kind == "SAME_UPPER" else t - t // 2 for t in total]
        pads = [*low, *(t - small for t, small in zip(total, low, strict=True))]
    if a.get("ceil_mode", 0):  # enough on the high side for a last, partial window that starts inside
        for axis in range(rank):
            size = dims[axis] + pads[axis] + pads[axis + rank]
            count = -(-(size - reach[axis]) // strides[axis]) + 1
            if (count - 1) * strides[axis] >= dims[axis] + pads[axis]:
                count -= 1
            pads[axis + rank] += max((count - 1) * strides[axis] + reach[axis] - size, 0)
    return pads


def _border(pads: Sequence[int]) -> list[tuple[int, int]]:
    """ONNX's order of pads as NumPy's."""
    rank = len(pads) // 2
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _with_bias(sums: Array, bias: Array | None, dtype: np.dtype[Any]) -> Array:
    per_filter = (-1, *[1] * (sums.ndim - 2))
    return (sums if bias is None else sums + bias.reshape(per_filter)).astype(dtype)


def _conv(a: Attributes, x: Array, weight: Array, bias: Array | None = None, matmul: Any = np.matmul) -> Array:
    return _with_bias(convolve(x, weight, a, matmul=matmul), bias, x.dtype)


def _conv_transpose(a: Attributes, x: Array, weight: Array, bias: Array | None = None) -> Array:
    return _with_bias(convolve_transposed(x, weight, a), bias, x.dtype)


def _over_windows(kernel: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(2, 2 + len(kernel)))


def _max_pool(a: Attributes, x: Array) -> list[Array]:
    """The largest of each window, and if it is asked for the position of the first such among all elements of x."""
    lowest = (np.iinfo if x.dtype.kind in "iu" else np.finfo)(x.dtype).min  # onnxruntime's and darknet's border
    kernel, over = a["kernel_shape"], _over_windows(a["kernel_shape"])
    views = windows(x, kernel, a, lowest)
    best = views.max(axis=over)
    if a.get("num_outputs", 1) == 1:
        return [best]
    spatial = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:], order="F" if a.get("storage_order") else "C")
    places = windows(spatial[None, None], kernel, a, -1)
    hits = (views == np.expand_dims(best, over)) & (places >= 0)
    first = hits.reshape(*x.shape[:2], -1, *best.shape[2:]).argmax(axis=2)
    flat = np.broadcast_to(
        places.reshape(1, 1, -1, *best.shape[2:]), (*x.shape[:2], math.prod(kernel), *best.shape[2:])
    )
    images = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(kernel))
    return [best, np.take_along_axis(flat, first[:, :, None], axis=2)[:, :, 0] + images * spatial.size]


def _average_pool(a: Attributes, x: Array) -> Array:
    """A border that counts is that of ``pads``, and never what ceil_mode adds to it."""
    kernel, dims = a["kernel_shape"], x.shape[2:]
    strides, dilations = _steps(a, kernel)
    reach = _reach(kernel, dilations)
    plain, whole = (_pads(dims, reach, strides, {**a, "ceil_mode": mode}) for mode in (0, a.get("ceil_mode", 0)))
    added = [wide - narrow for wide, narrow in zip(whole, plain, strict=True)]
    steps = {"strides": strides, "dilations": dilations}
    counted = np.pad(np.ones(dims), _border(plain), constant_values=a.get("count_include_pad", 0))[None, None]
    over = _over_windows(kernel)
    total = windows(x.astype(np.float64), kernel, {**steps, "pads": whole}, 0.0).sum(axis=over)
    return (total / windows(counted, kernel, {**steps, "pads": added}, 0.0).sum(axis=over)).astype(x.dtype)


def _lp_pool(a: Attributes, x: Array) -> Array:
    """The border adds nothing to a norm."""
    kernel, p = a["kernel_shape"], a.get("p", 2)
    powers = np.abs(x.astype(np.float64)) ** p
    return (windows(powers, kernel, a, 0.0).sum(axis=_over_windows(kernel)) ** (1 / p)).astype(x.dtype)


WINDOW_OPS: dict[str, Callable[..., Any]] = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
"""Name of an operator → function (attributes, *inputs) → output."""
