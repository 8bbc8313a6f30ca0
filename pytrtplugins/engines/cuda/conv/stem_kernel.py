"""A network's first convolution with its pool, from the image as the user gives it: see ``stem.cu``."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....cuda.driver import Launch, kernel_fields
from ....tensor import DType
from ..device.layout import CODES, FP8, KIND
from ..device.source import load_kernel
from .packing import filter_order
from .problem import ConvProblem

__all__ = ["StemArgs", "StemKernel", "StemShape", "pack_stem", "stem_arguments"]

_X_KINDS = {DType.FLOAT32: 0, DType.FLOAT16: 1, DType.INT8: 2, DType.UINT8: 3}
_KINDS = {dtype: KIND[dtype] for dtype in (DType.FLOAT16, *CODES)}


@dataclass(frozen=True, kw_only=True)
class StemShape:
    """A 3x3 convolution with padding 1 over at most 4 channels.

    Attributes:
        n: Images.
        c: Channels, 1 to 4.
        h: Rows; even with a pool.
        w: Columns; even with a pool.
        k: Filters: 16, 32, 48 or 64.
        x_strides: Values between images, channels, rows and columns of x: any layout.
        x_type: float32, float16, int8 or uint8.
        element: float16, int8 or FP8, what is multiplied.
        y_pitch: Values between pixels of y, NHWC; with its type a multiple of 4 bytes.
        y_type: float16, int8 or FP8.
        pool: Whether the largest of each 2x2 pixels is written; scales must be positive.
        slope: max(v, slope * v) is the activation.
        prelu: Whether each filter has a slope of its own instead, any number.
        x_factor: What a value of x is multiplied by.
        x_scale: The scale of codes; for ``element`` int8 and FP8.
    """

    n: int
    c: int
    h: int
    w: int
    k: int
    x_strides: tuple[int, int, int, int]
    x_type: DType
    element: DType
    y_pitch: int
    y_type: DType
    pool: bool = True
    slope: float = 1.0
    prelu: bool = False
    x_factor: float = 1.0
    x_scale: float = 1.0

    @classmethod
    def of(cls, problem: ConvProblem, x_scale: float = 1.0) -> StemShape:
        """The problem in the kernel's own terms, of images and outputs in NHWC; `unsupported` says whether it fits.

        Args:
            problem: 3x3, with padding 1.
            x_scale: Of codes.
        """
        (n, c, h, w), (image, channel, row, column), y = problem.x.dims, problem.x.strides, problem.y
        return cls(
            n=n,
            c=c,
            h=h,
            w=w,
            k=y.dims[1],
            x_strides=(image, channel, row, column),
            x_type=problem.x.dtype,
            element=problem.element or problem.x.dtype,
            y_pitch=y.pitch,
            y_type=y.dtype,
            pool=problem.pool,
            slope=problem.bounds[0] if problem.activation == "leaky" else 1.0,
            prelu=problem.activation == "prelu",
            x_scale=x_scale,
        )

    def unsupported(self) -> str:
        """Why the kernel cannot compute it; empty when it can."""
        if not 1 <= self.c <= 4 or self.k not in (16, 32, 48, 64):
            return f"{self.c} channels, {self.k} filters"
        if self.x_type not in _X_KINDS or not {self.element, self.y_type} <= _KINDS.keys():
            return f"{self.x_type}, {self.element}, {self.y_type}"
        if self.pool and (self.h % 2 or self.w % 2):
            return "a pool of an odd size"
        if self.y_pitch * self.y_type.itemsize % 4 or not 0 <= self.slope <= 1:
            return "y's pitch or the slope"
        return ""

    @property
    def multiplied(self) -> DType:
        """The type in which the matrix units read the element: FP8 becomes float16, which holds all its values."""
        return DType.FLOAT16 if self.element is FP8 else self.element

    @property
    def tiles(self) -> tuple[int, int, int]:
        """How many a row of an image has, how many rows of them, and the images."""
        return -(-self.w // 32), -(-self.h // 16), self.n

    def definitions(self) -> dict[str, int]:
        """What the kernel is compiled with."""
        return {
            "ELEMENT": KIND[self.element],
            "OUT": KIND[self.y_type],
            "POOL": int(self.pool),
            "FILTERS": self.k,
            "CHANNELS": self.c,
            "PRELU": int(self.prelu),
            "RELU": int(self.slope == 0 and not self.prelu),
            "X": _X_KINDS[self.x_type],
        }


class StemArgs(ctypes.Structure):
    """``StemArgs`` of stem.cu, field by field."""

    _fields_ = kernel_fields(
        pointers="x weights scale bias y",
        longs="x_image x_channel x_row x_column",
        ints="h w tiles_w tiles_h tiles y_pitch vector",
        floats="x_factor x_scale slope",
    )


def stem_arguments(shape: StemShape, x: int, weights: int, scale: int, bias: int, y: int) -> StemArgs:
    """The numbers that the kernel gets; addresses are those of `StemKernel.launch`."""
    (image, channel, row, column), (across, down, _) = shape.x_strides, shape.tiles
    pitch = shape.y_pitch * shape.y_type.itemsize
    return StemArgs(
        x=x, weights=weights, scale=scale, bias=bias, y=y,
        x_image=image, x_channel=channel, x_row=row, x_column=column,
        h=shape.h, w=shape.w, tiles_w=across, tiles_h=down, tiles=math.prod(shape.tiles),
        y_pitch=pitch, vector=int(pitch % 16 == 0 and y % 16 == 0),
        x_factor=shape.x_factor, x_scale=shape.x_scale, slope=shape.slope,
    )  # fmt: skip


def pack_stem(shape: StemShape, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Weights (K, C, 3, 3) → (K, 12 taps, 4 channels), in the order of `filter_order`; the last 3 taps are zero."""
    packed = np.zeros((shape.k, 12, 4), shape.multiplied.numpy)
    packed[:, :9, : shape.c] = weights.transpose(0, 2, 3, 1).reshape(shape.k, 9, shape.c)
    return packed[filter_order(shape.k, 1, shape.k)]


class StemKernel:
    """The stem's kernel in the current context.

    Args:
        shape: The problem.
        capability: The GPU's compute capability, 90 for 9.0; 80 at least.
        multiprocessors: Of the GPU: as many blocks run as it holds.
    """

    def __init__(self, shape: StemShape, capability: int, multiprocessors: int = 132) -> None:
        self.shape, self.capability = shape, capability
        self._function = load_kernel("stem.cu", shape.definitions(), capability)
        self._grid = min(math.prod(shape.tiles), multiprocessors * (3 if shape.k <= 32 else 1))
        self._launches: dict[tuple[int, int, int, int, int, bool], Launch] = {}

    def launch(
        self, x: int, weights: int, scale: int, bias: int, y: int, stream: int, programmatic_launch: bool = True
    ) -> None:
        """Queue it: addresses of the image, of `pack_stem`'s bytes, of (K) scales and biases, slopes behind these, and of the output."""
        key = x, weights, scale, bias, y, programmatic_launch
        if (launch := self._launches.get(key)) is None:
            launch = self._launches[key] = self._prepare(*key)
        launch(stream)

    def _prepare(self, x: int, weights: int, scale: int, bias: int, y: int, programmatic_launch: bool) -> Launch:
        arguments = stem_arguments(self.shape, x, weights, scale, bias, y)
        return Launch(
            self._function,
            self._grid,
            256,
            [arguments],
            programmatic_launch=programmatic_launch and self.capability >= 90,
        )
