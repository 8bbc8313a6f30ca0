"""Kernels that convert a tensor's element type, layout or scale (reformat)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ....tensor import DType
from .device import Tensor
from .layout import KIND, Format
from .source import nhwc_kernel

__all__ = ["KINDS", "Launch", "patches", "reformat"]

Launch = Callable[[Any], None]
"""Queues a step's work on a stream."""

_PIXELS = nhwc_kernel("pixels")
_PLANES = nhwc_kernel("planes")
_REFORMAT = nhwc_kernel("reformat")
_PATCHES = nhwc_kernel("patches")
KINDS = {**KIND, DType.UINT8: 3}
"""Element type → its number in nhwc.cu."""


def reformat(x: Tensor, y: Tensor, x_scale: float = 1.0, y_scale: float = 1.0, alone: bool = True) -> Launch:
    """Another type, layout or scale of the same values; where y lies ``alone``, channels that fill 16 bytes become zero."""
    form = _as_image(y.format)
    image = (
        replace(x.format, dims=form.dims) if form.nhwc and len(x.format.dims) > 4 else _as_image(x.format)
    )  # a volume
    n, c, h, w = form.dims
    if alone and _is_planes(image) and _is_vectors(form) and x_scale == 1.0:
        groups = -(-c // form.vector)
        return lambda stream: _PIXELS.launch(
            x.flat, y.flat, n, c, groups, h * w, form.pitch, y_scale, threads=n * groups * h * w, stream=stream
        )
    if _is_vectors(image) and _is_planes(form) and y_scale == 1.0:
        groups = -(-c // image.vector)
        return lambda stream: _PLANES.launch(
            x.flat, y.flat, n, c, groups, h * w, image.pitch, x_scale, threads=n * groups * h * w, stream=stream
        )
    padded = min(form.pitch, -(-c // form.vector) * form.vector) if alone and form.nhwc and c % form.vector else c
    numbers = (
        KINDS[x.format.dtype], image.strides, x_scale, y.flat, KINDS[y.format.dtype], form.strides, y_scale,
        n, c, padded, h, w, form.nhwc,
    )  # fmt: skip
    threads = n * padded * h * w
    return lambda stream: _REFORMAT.launch(x.flat, *numbers, threads=threads, stream=stream)


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


def _as_image(form: Format) -> Format:
    if len(form.dims) == 4:
        return form
    return replace(form, dims=(1, 1, 1, form.elements))


def _is_planes(form: Format) -> bool:
    return form.dtype is DType.FLOAT32 and not form.nhwc


def _is_vectors(form: Format) -> bool:
    """Whether a tensor consists of 16-byte groups of channels, the last of a pixel padded at most."""
    c, vector = form.dims[1], form.vector
    return (
        form.nhwc
        and form.dtype is not DType.UINT8
        and form.pitch % vector == 0
        and (c % vector == 0 or form.pitch - c < vector)
    )
