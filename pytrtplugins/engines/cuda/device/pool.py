"""The 2x2 pool's kernel, which may start before the kernel in front of it has ended."""

from __future__ import annotations

from typing import Any

from .device import CudaDevice, Device, Tensor

__all__ = ["max_pool_2x2"]

_OLDEST = 80


def max_pool_2x2(device: Device, x: Tensor, y: Tensor, kernel: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A launch of the largest of each 2x2 pixels; None where the kernel does not fit the tensors or the GPU.

    Args:
        device: Where the tensors are.
        x: NHWC, an even number of rows and columns.
        y: NHWC.
        kernel: Of the pool.
        strides: Of the pool.
    """
    if not isinstance(device, CudaDevice) or device.capability < _OLDEST:
        return None
    from .pool_kernel import PoolKernel, PoolShape  # where it is used, since it loads the driver

    (n, c, h, w), (_, _, oh, ow) = x.format.dims, y.format.dims
    channels = -(-c // x.format.vector) * x.format.vector
    shape = PoolShape(
        n=n, c=channels, oh=oh, ow=ow, x_pitch=x.format.pitch, y_pitch=y.format.pitch, dtype=x.format.dtype
    )
    if (tuple(kernel), tuple(strides), (h, w)) != ((2, 2), (2, 2), (2 * oh, 2 * ow)) or shape.unsupported():
        return None
    pool = PoolKernel(shape, device.capability)
    return lambda stream: pool.launch(x.flat.data.ptr, y.flat.data.ptr, int(stream.ptr))
