"""Operators that slide a window over an image: convolution and pooling, by copying the windows out and reducing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["WINDOW_OPS", "convolve"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]


def windows(x: Array, kernel: Sequence[int], a: Attributes, fill: float) -> Array:
    """Every window of an image: [N, C, H, W] → [N, C, kh, kw, oh, ow], the border filled with ``fill``."""
    strides, dilations = a.get("strides", [1, 1]), a.get("dilations", [1, 1])
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    pads = _pads(x.shape[2:], reach, strides, a)
    sizes = [size + low + high for size, low, high in zip(x.shape[2:], pads[:2], pads[2:], strict=True)]
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])], constant_values=x.dtype.type(fill))
    out = [(size - r) // step + 1 for size, r, step in zip(sizes, reach, strides, strict=True)]
    n, c = x.shape[:2]
    result = np.empty((n, c, *kernel, *out), x.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            y0, x0 = i * dilations[0], j * dilations[1]
            result[:, :, i, j] = x[
                :, :, y0 : y0 + out[0] * strides[0] : strides[0], x0 : x0 + out[1] * strides[1] : strides[1]
            ]
    return result


def convolve(x: Array, weight: Array, a: Attributes, fill: float = 0.0) -> Array:
    """Sums of products in float64: exact for integers below 2⁵³, and for float32 rounded once, at the end.

    Args:
        x: [N, C, H, W].
        weight: [M, C / groups, kh, kw].
        a: The ONNX attributes of Conv.
        fill: Value of the border, the zero point where x holds codes.

    Returns:
        [N, M, oh, ow], float64, no bias.
    """
    groups = a.get("group", 1)
    outputs = []
    for image in x:  # one image at a time bounds the memory for the windows
        views = windows(image[None], weight.shape[2:], a, fill)[0]
        oh, ow = views.shape[3:]
        columns = views.reshape(groups, -1, oh * ow).astype(np.float64)
        rows = weight.reshape(groups, weight.shape[0] // groups, -1).astype(np.float64)
        outputs.append(np.matmul(rows, columns).reshape(weight.shape[0], oh, ow))
    return np.stack(outputs)


def _pads(dims: Sequence[int], reach: Sequence[int], strides: Sequence[int], a: Attributes) -> list[int]:
    kind = a.get("auto_pad", "NOTSET")
    pads = list(a.get("pads", [0, 0, 0, 0]))
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-d // s) - 1) * s + r - d, 0) for d, r, s in zip(dims, reach, strides, strict=True)]
        low = [t // 2 if kind == "SAME_UPPER" else t - t // 2 for t in total]
        pads = [*low, *(t - small for t, small in zip(total, low, strict=True))]
    if a.get("ceil_mode", 0):  # enough on the high side for a last, partial window that starts inside
        for axis in range(2):
            size = dims[axis] + pads[axis] + pads[axis + 2]
            count = -(-(size - reach[axis]) // strides[axis]) + 1
            if (count - 1) * strides[axis] >= dims[axis] + pads[axis]:
                count -= 1
            pads[axis + 2] += max((count - 1) * strides[axis] + reach[axis] - size, 0)
    return pads


def _conv(a: Attributes, x: Array, weight: Array, bias: Array | None = None) -> Array:
    y = convolve(x, weight, a)
    return (y if bias is None else y + bias.reshape(-1, 1, 1)).astype(x.dtype)


def _max_pool(a: Attributes, x: Array) -> Array:
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    result: Array = windows(x, a["kernel_shape"], a, lowest).max(axis=(2, 3))
    return result


def _average_pool(a: Attributes, x: Array) -> Array:
    total = windows(x.astype(np.float64), a["kernel_shape"], a, 0.0).sum(axis=(2, 3))
    counted = np.ones_like(x[:1, :1], np.float64)
    if a.get("count_include_pad", 0):
        dilations = a.get("dilations", [1, 1])
        reach = [(size - 1) * step + 1 for size, step in zip(a["kernel_shape"], dilations, strict=True)]
        pads = _pads(x.shape[2:], reach, a.get("strides", [1, 1]), {**a, "ceil_mode": 0})
        counted = np.pad(counted, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])], constant_values=1.0)
        a = {**a, "pads": [0, 0, 0, 0], "auto_pad": "NOTSET"}
    result: Array = (total / windows(counted, a["kernel_shape"], a, 0.0).sum(axis=(2, 3))).astype(x.dtype)
    return result


def _global_average(a: Attributes, x: Array) -> Array:
    result: Array = x.astype(np.float64).mean(axis=tuple(range(2, x.ndim)), keepdims=True).astype(x.dtype)
    return result


def _global_max(a: Attributes, x: Array) -> Array:
    result: Array = x.max(axis=tuple(range(2, x.ndim)), keepdims=True)
    return result


WINDOW_OPS: dict[str, Any] = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
    "MaxPool": _max_pool,
}
"""Name of an operator → function (attributes, *inputs) → output."""
