"""Max pools that are not part of a convolution, for GPUs from compute capability 8.0 on: see ``pool.cu``."""

from __future__ import annotations

import ctypes
import functools

from ....tensor import DType
from .driver import Function, Module, current_context, kernel_fields
from .layout import KIND, Format
from .source import compile_cubin
from .window import Window

__all__ = ["PoolKernel"]


class _Args(ctypes.Structure):
    _fields_ = kernel_fields(pointers="x y", ints="h w oh ow pixels pieces pad_h pad_w x_pitch y_pitch")


class PoolKernel:
    """The pool's kernel in the current context, which may start before the kernel in front of it has ended.

    Args:
        x: How the input lies: NHWC, 16 bytes at a time.
        y: Likewise the output.
        window: Of a max pool.
        capability: The GPU's compute capability, 90 for 9.0.
    """

    def __init__(self, x: Format, y: Format, window: Window, capability: int) -> None:
        (n, c, h, w), (_, _, oh, ow), size = x.dims, y.dims, x.dtype.itemsize
        pixels, pieces = n * oh * ow, -(-c // x.vector)
        self._early, self._grid = capability >= 90, (-(-pixels * pieces // 128), 1, 1)
        self._numbers = {
            "h": h, "w": w, "oh": oh, "ow": ow, "pixels": pixels, "pieces": pieces, "pad_h": window.pads[0],
            "pad_w": window.pads[1], "x_pitch": x.pitch * size, "y_pitch": y.pitch * size,
        }  # fmt: skip
        leaves = not window.inside((h, w), (oh, ow))
        self._function = _function(current_context(), x.dtype, window.kernel, window.strides, leaves, capability)

    def launch(self, x: int, y: int, stream: int) -> None:
        """Queue it: addresses at multiples of 16 bytes."""
        self._function.launch(self._grid, 128, [_Args(x=x, y=y, **self._numbers)], stream, early=self._early)


@functools.cache
def _function(
    context: int, dtype: DType, kernel: tuple[int, int], strides: tuple[int, int], padded: bool, capability: int
) -> Function:
    constants = {
        "ELEMENT": KIND[dtype], "R": kernel[0], "S": kernel[1], "STRIDE_H": strides[0], "STRIDE_W": strides[1],
        "PADDED": int(padded), "DEPENDENT": int(capability >= 90),
    }  # fmt: skip
    return Function(Module(compile_cubin("pool.cu", constants, str(capability))), "pool", 0)
