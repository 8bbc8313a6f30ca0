"""Formats of tensors in memory: element type, layout, pixel pitch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ....tensor import DType

__all__ = [
    "CODES",
    "FP8",
    "KIND",
    "VECTOR_BYTES",
    "Format",
    "Strides",
    "as_bytes",
    "as_rows",
    "channels_last",
    "linear",
]

FP8 = DType.FLOAT8E4M3FN
CODES = (DType.INT8, FP8)
"""Types of the codes that convolutions multiply."""
KIND = {DType.FLOAT32: 0, DType.FLOAT16: 1, DType.INT8: 2, FP8: 4}
"""Element type → its number in the kernels that this engine compiles itself."""

VECTOR_BYTES = 16
"""What one access of a convolution reads: channels are padded to this many bytes."""


@dataclass(frozen=True)
class Format:
    """The format of a tensor in memory.

    Attributes:
        dims: Sizes, NCHW for images.
        dtype: Element type.
        pitch: For NHWC the stride between pixels in values, at least the channels; 0 for a linear tensor.
    """

    dims: tuple[int, ...]
    dtype: DType
    pitch: int = 0

    @property
    def nhwc(self) -> bool:
        """Whether the channels are innermost."""
        return self.pitch > 0

    @property
    def dense(self) -> bool:
        """Whether there are no gaps between values."""
        return not self.nhwc or self.pitch == self.dims[1]

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis, in values."""
        if self.nhwc:
            _, _, h, w = self.dims
            return h * w * self.pitch, 1, w * self.pitch, self.pitch
        return tuple(math.prod(self.dims[axis + 1 :]) for axis in range(len(self.dims)))

    @property
    def elements(self) -> int:
        """Values from the first to the last, gaps included."""
        if self.nhwc:
            n, _, h, w = self.dims
            return n * h * w * self.pitch
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes from the first to the last value, padding included."""
        return self.elements * self.dtype.itemsize

    @property
    def vector(self) -> int:
        """Values of one 16-byte access."""
        return VECTOR_BYTES // self.dtype.itemsize

    def __str__(self) -> str:
        layout = f"nhwc/{self.pitch}" if self.nhwc else "linear"
        return f"{self.dtype}[{', '.join(map(str, self.dims))}] {layout}"


@dataclass(frozen=True)
class Strides:
    """A tensor that lies in the memory of another, evenly along each axis.

    Attributes:
        dims: Sizes.
        dtype: Element type.
        strides: Distance between neighbours along each axis, in values.
    """

    dims: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]


def linear(dims: tuple[int, ...], dtype: DType) -> Format:
    """The row-major format."""
    return Format(dims, dtype)


def channels_last(dims: tuple[int, ...], dtype: DType, dense: bool = False) -> Format:
    """The NHWC format, channels padded to 16 bytes unless ``dense``."""
    vector = 1 if dense else VECTOR_BYTES // dtype.itemsize
    return Format(dims, dtype, max(1, -(-dims[1] // vector) * vector))


def as_bytes(form: Format) -> Format:
    """The format with int8 for FP8, as plugins that only move codes see it; other formats are unchanged."""
    return replace(form, dtype=DType.INT8) if form.dtype is FP8 else form


def as_rows(form: Format) -> Format:
    """View a linear tensor (…, C) as an NHWC image of one column whose pixels are the rows; NHWC formats are unchanged."""
    if form.nhwc:
        return form
    columns = form.dims[-1]
    return Format((1, columns, form.elements // columns, 1), form.dtype, columns)
