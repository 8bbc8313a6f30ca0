"""Tensors of the Open Inference Protocol: names of types, dims, and their bytes, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import RequestError
from ..tensor import DType, TensorDesc
from ..utils.text_formats import shorten

__all__ = ["DATATYPES", "TensorSpec", "to_bytes", "to_strings"]

DATATYPES = {
    "BOOL": DType.BOOL,
    "UINT8": DType.UINT8,
    "UINT16": DType.UINT16,
    "UINT32": DType.UINT32,
    "UINT64": DType.UINT64,
    "INT8": DType.INT8,
    "INT16": DType.INT16,
    "INT32": DType.INT32,
    "INT64": DType.INT64,
    "FP16": DType.FLOAT16,
    "BF16": DType.BFLOAT16,
    "FP32": DType.FLOAT32,
    "FP64": DType.FLOAT64,
}
"""The protocol's name of a type → ours."""

_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_FOUND: dict[np.dtype[Any], str] = {}  # what `datatype_of` has been asked


@dataclass(frozen=True)
class TensorSpec:
    """An input or output as the protocol says it.

    Attributes:
        name: Of the tensor.
        datatype: The protocol's name of its type.
        dims: Sizes; -1 where free.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]

    @classmethod
    def of(cls, desc: TensorDesc) -> TensorSpec:
        """That of a tensor of an engine.

        Raises:
            KeyError: the protocol has no such type.
        """
        return cls(desc.name, _NAMES[desc.dtype], tuple(dim if isinstance(dim, int) else -1 for dim in desc.dims))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type."""
        return DATATYPES[self.datatype].numpy

    @cached_property
    def free(self) -> bool:
        """Whether a dim behind the first is free, so that requests may not fit together."""
        return -1 in self.dims[1:]

    def check(self, datatype: object, shape: object) -> tuple[int, ...]:
        """The dims that a client gives, once they fit.

        Raises:
            RequestError: they do not, or the type is another.
        """
        if datatype != self.datatype:
            raise RequestError(f"input {self.name!r}: expected datatype {self.datatype}, found {shorten(datatype)}")
        if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 1 << 40 for size in shape):
            raise RequestError(f"input {self.name!r}: shape: expected a list of sizes, found {shorten(shape)}")
        if math.prod(max(1, size) for size in shape) >= 1 << 48:  # beside a dim of 0, others could be anything
            raise RequestError(f"input {self.name!r}: shape {shorten(shape)} is larger than any memory")
        if len(shape) != len(self.dims) or not all(
            dim in (size, -1) for dim, size in zip(self.dims, shape, strict=True)
        ):
            raise RequestError(
                f"input {self.name!r}: expected shape {list(self.dims)}, found {shorten(shape)}; -1 is free"
            )
        return tuple(shape)

    def from_bytes(self, data: memoryview, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """An array over bytes of the protocol: row-major, little-endian. Nothing is copied.

        Raises:
            RequestError: there are more or fewer than the dims need.
        """
        expected = math.prod(shape) * self.dtype.itemsize
        if len(data) != expected:
            raise RequestError(
                f"input {self.name!r}: expected {expected:,} bytes for {self.datatype} {list(shape)}, found {len(data):,}",
                status=400,
            )
        return np.frombuffer(data, self.dtype).reshape(shape)

    def from_list(self, data: object, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """An array of numbers in a list, nested or not.

        Raises:
            RequestError: there are more or fewer than the dims need, or they do not fit the type.
        """
        if not isinstance(data, list):
            raise RequestError(f"input {self.name!r}: data: expected a list, found {shorten(data)}")
        try:
            found = np.asarray(data)
        except (ValueError, OverflowError) as error:
            raise RequestError(f"input {self.name!r}: data: {error}") from None
        if found.size != math.prod(shape):
            raise RequestError(
                f"input {self.name!r}: expected {math.prod(shape):,} values for {list(shape)}, found {found.size:,}",
                status=400,
            )
        dtype = self.dtype
        if found.size == 0:
            return np.empty(shape, dtype)
        if found.dtype.kind not in ("b" if dtype.kind == "b" else "iu" if dtype.kind in "iu" else "fiu"):
            raise RequestError(
                f"input {self.name!r}: data: expected numbers for {self.datatype}, found {shorten(data)}"
            )
        if dtype.kind in "iu" and not (
            np.iinfo(dtype).min <= int(found.min()) and int(found.max()) <= np.iinfo(dtype).max
        ):
            raise RequestError(f"input {self.name!r}: data: a value lies outside of {self.datatype}")
        with np.errstate(over="ignore"):
            return found.astype(dtype).reshape(shape)


def to_bytes(array: npt.NDArray[Any]) -> bytes:
    """The protocol's bytes of an array; of strings each with its length before it."""
    if array.dtype.kind != "O":
        return array.tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in array.ravel().tolist())


def to_strings(values: Sequence[str], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """An array of strings, which the protocol calls BYTES."""
    return np.array([value.encode() for value in values], object).reshape(shape)


def datatype_of(array: npt.NDArray[Any]) -> str:
    """The protocol's name of an array's type."""
    found = _FOUND.get(array.dtype)
    if found is None:
        found = _FOUND[array.dtype] = "BYTES" if array.dtype.kind == "O" else _NAMES[DType.of(array)]
    return found
