"""Kernels around convolutions in NHWC: the gathering of windows as channels (im2col)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....tensor import DType
from .device import Tensor
from .layout import KIND
from .source import nhwc_kernel

__all__ = ["KINDS", "Launch", "patches"]

Launch = Callable[[Any], None]
"""Queues a step's work on a stream."""

_PATCHES = nhwc_kernel("patches")
KINDS = {**KIND, DType.UINT8: 3}
"""Element type → its number in nhwc.cu."""


def patches(x: Tensor, y: Tensor, attributes: Mapping[str, Any]) -> Launch:
    """Make a function that gathers the windows of images as channels (im2col).

    Args:
        x: Images (N, C, H, W), float32, linear.
        y: (N, R * S * C, rows, columns) in NHWC: of each window R rows and S columns, and of those the channels.
        attributes: ``kernel`` (R and S), ``strides`` and ``begin`` (how far the first window is above and left of the image), each
            down and across; ``y_scale`` of codes.
    """
    (n, c, h, w), (_, channels, rows, columns) = x.format.dims, y.format.dims
    groups = -(-channels // y.format.vector)
    numbers = (n, c, h, w, channels, groups, rows, columns, y.format.pitch, int(attributes["kernel"][1]))
    windows = [int(number) for name in ("strides", "begin") for number in attributes[name]]
    scale, threads = float(attributes["y_scale"]) or 1.0, n * groups * rows * columns
    return lambda stream: _PATCHES.launch(x.flat, y.flat, *numbers, *windows, scale, threads=threads, stream=stream)
