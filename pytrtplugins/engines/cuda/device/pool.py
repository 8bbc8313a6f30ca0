"""MaxPool and AveragePool that are not fused into a convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .device import CudaDevice, Device, Tensor
from .layout import FP8, KIND, Format
from .pool_kernel import PoolKernel
from .source import nhwc_kernel
from .window import Window

__all__ = ["pool"]

_POOL = nhwc_kernel("pool")
_OLDEST = 80


def pool(device: Device, x: Format, y: Format, window: Window) -> Callable[[Tensor, Tensor, Any], None]:
    """A launch, of an input, an output and a stream: by the vector kernel where it fits the tensors and the GPU.

    Args:
        device: Where the tensors will be.
        x: How the input lies, NHWC.
        y: How the output lies, NHWC; padding channels are filled where a pixel has room for them.
        window: What is taken together.
    """
    (_, c, h, w), (n, _, oh, ow) = x.dims, y.dims
    pixels = n * oh * ow
    channels = c if c % y.vector == 0 else min(x.pitch, y.pitch)
    aligned = not (channels % x.vector or x.pitch % x.vector or y.pitch % y.vector)
    fits = aligned and not window.mean and x.dtype in KIND
    if fits and isinstance(device, CudaDevice) and device.capability >= _OLDEST:
        kernel = PoolKernel(x, y, window, device.capability)
        return lambda x, y, stream: kernel.launch(x.flat.data.ptr, y.flat.data.ptr, int(stream.ptr))
    numbers = (
        pixels, window.frames, h, w, channels, x.pitch, oh, ow, y.pitch, window.depth, window.kernel, window.strides,
        window.depth_pads[0], window.pads[:2], window.mean, window.count_padding, window.frames[0] + window.depth_pads[1],
        h + window.pads[2], w + window.pads[3], x.dtype is FP8,
    )  # fmt: skip
    threads = pixels * channels
    return lambda x, y, stream: _POOL.launch(x.flat, y.flat, *numbers, threads=threads, stream=stream)
