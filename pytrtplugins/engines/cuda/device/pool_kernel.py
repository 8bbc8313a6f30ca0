"""The 2x2 pool with stride 2 that darknet's networks have, where it is not part of a convolution: see ``pool.cu``."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from ....tensor import DType
from .driver import Function, Module, current_context, kernel_fields
from .layout import KIND
from .source import compile_cubin

__all__ = ["PoolKernel", "PoolShape"]


@dataclass(frozen=True, kw_only=True)
class PoolShape:
    """The largest of each 2x2 pixels of an NHWC tensor.

    Attributes:
        n: Images.
        c: Channels.
        oh: Rows of y; x has twice as many.
        ow: Columns of y; likewise.
        x_pitch: Values between pixels of x; a multiple of 16 bytes.
        y_pitch: Likewise of y.
        dtype: float16 or int8.
    """

    n: int
    c: int
    oh: int
    ow: int
    x_pitch: int
    y_pitch: int
    dtype: DType

    def unsupported(self) -> str:
        """Why the kernel cannot compute it; empty when it can."""
        if self.dtype not in (DType.FLOAT16, DType.INT8):
            return str(self.dtype)
        size = self.dtype.itemsize
        return "16 bytes" if any(count * size % 16 for count in (self.c, self.x_pitch, self.y_pitch)) else ""


class _Args(ctypes.Structure):
    _fields_ = kernel_fields(pointers="x y", ints="oh ow pixels pieces x_pitch y_pitch")


class PoolKernel:
    """The pool's kernel in the current context.

    Args:
        shape: The problem.
        capability: The GPU's compute capability, 90 for 9.0.
    """

    def __init__(self, shape: PoolShape, capability: int) -> None:
        self.shape, self.capability, self._function = (
            shape,
            capability,
            _function(current_context(), shape.dtype, capability),
        )

    def launch(self, x: int, y: int, stream: int, early: bool = True) -> None:
        """Queue it: addresses at multiples of 16 bytes."""
        shape, size = self.shape, self.shape.dtype.itemsize
        pixels, pieces = shape.n * shape.oh * shape.ow, shape.c * size // 16
        arguments = _Args(
            x=x, y=y, oh=shape.oh, ow=shape.ow, pixels=pixels, pieces=pieces,
            x_pitch=shape.x_pitch * size, y_pitch=shape.y_pitch * size,
        )  # fmt: skip
        grid = (-(-pixels * pieces // 128), 1, 1)
        self._function.launch(grid, 128, [arguments], stream, early=early and self.capability >= 90)


@functools.cache
def _function(context: int, dtype: DType, capability: int) -> Function:
    constants = {"ELEMENT": KIND[dtype], "DEPENDENT": int(capability >= 90)}
    return Function(Module(compile_cubin("pool.cu", constants, str(capability))), "pool", 0)
