"""Max pools that are not part of a convolution, for GPUs from compute capability 8.0 on: see ``pool.cu``."""

from __future__ import annotations

import ctypes

from ....cuda.driver import Launch, kernel_fields
from .layout import KIND, Format
from .source import load_kernel
from .window import Window

__all__ = ["PoolKernel"]


class _Args(ctypes.Structure):
    _fields_ = kernel_fields(pointers="x y", ints="d h w od oh ow pixels pieces pad_d pad_h pad_w x_pitch y_pitch")


class PoolKernel:
    """The pool's kernel in the current context, which may start before the kernel in front of it has ended.

    Args:
        x: How the input lies: NHWC, 16 bytes at a time.
        y: Likewise the output.
        window: Of a max pool.
        capability: The GPU's compute capability, 90 for 9.0.
    """

    def __init__(self, x: Format, y: Format, window: Window, capability: int) -> None:
        (_, c, h, w), (n, _, oh, ow), size = x.dims, y.dims, x.dtype.itemsize
        d, od = window.frames
        pixels, pieces = n * oh * ow, -(-c // x.vector)
        self._programmatic_launch, self._grid = capability >= 90, -(-pixels * pieces // 128)
        self._numbers = {
            "d": d, "h": h, "w": w, "od": od, "oh": oh, "ow": ow, "pixels": pixels, "pieces": pieces,
            "pad_d": window.depth_pads[0], "pad_h": window.pads[0], "pad_w": window.pads[1], "x_pitch": x.pitch * size,
            "y_pitch": y.pitch * size,
        }  # fmt: skip
        constants = {
            "ELEMENT": KIND[x.dtype], "T": window.depth[0], "R": window.kernel[0], "S": window.kernel[1],
            "STRIDE_D": window.depth[1], "STRIDE_H": window.strides[0], "STRIDE_W": window.strides[1],
            "PADDED": int(not window.inside((h, w), (oh, ow))),
        }  # fmt: skip
        self._function = load_kernel("pool.cu", constants, capability)
        self._launches: dict[tuple[int, int], Launch] = {}

    def launch(self, x: int, y: int, stream: int) -> None:
        """Queue it: addresses at multiples of 16 bytes."""
        if (launch := self._launches.get((x, y))) is None:
            arguments = _Args(x=x, y=y, **self._numbers)
            launch = self._launches[x, y] = Launch(
                self._function, self._grid, 128, [arguments], programmatic_launch=self._programmatic_launch
            )
        launch(stream)
