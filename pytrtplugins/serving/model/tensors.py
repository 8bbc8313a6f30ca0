"""Tensors of the Open Inference Protocol: names of types, dims, and their bytes, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import PluginError, RequestError
from ...tensor import DType, TensorDesc
from ...utils.text_formats import shorten

__all__ = [
    "DATATYPES",
    "TensorSpec",
    "as_strings",
    "datatype_of",
    "is_datatype",
    "read_strings",
    "to_bytes",
    "to_strings",
]

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
"""The protocol's name of a type of numbers → ours; beside these there is ``BYTES``, strings of any bytes."""

_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_FOUND: dict[np.dtype[Any], str] = {}  # what `datatype_of` has been asked
_MOST_STRINGS = 1 << 18
_WHOLE: frozenset[type] = frozenset({int})
_ELEMENTS: dict[str, frozenset[type]] = {
    "BOOL": frozenset({bool}),
    "BYTES": frozenset({str}),
    **dict.fromkeys(("FP16", "BF16", "FP32", "FP64"), frozenset({int, float})),
}
"""What JSON has to say for elements of a type; for all others whole numbers."""


@dataclass(frozen=True)
class TensorSpec:
    """An input or output as the protocol says it. A model may declare one as this to take or give strings (``BYTES``).

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
        """NumPy's type; strings are objects."""
        return np.dtype(object) if self.datatype == "BYTES" else DATATYPES[self.datatype].numpy

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
        if self.datatype == "BYTES" and math.prod(shape) > _MOST_STRINGS:  # each takes time, however short it is
            raise RequestError(f"input {self.name!r}: a tensor may have {_MOST_STRINGS:,} strings", status=413)
        if len(shape) != len(self.dims) or not all(
            dim in (size, -1) for dim, size in zip(self.dims, shape, strict=True)
        ):
            raise RequestError(
                f"input {self.name!r}: expected shape {list(self.dims)}, found {shorten(shape)}; -1 is free"
            )
        return tuple(shape)

    def from_bytes(self, data: memoryview, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """An array over bytes of the protocol: row-major, little-endian. Nothing but strings is copied.

        Raises:
            RequestError: there are more or fewer than the dims need.
        """
        if self.datatype == "BYTES":
            try:
                return read_strings(data, shape)
            except ValueError as error:
                raise RequestError(f"input {self.name!r}: {error}") from None
        expected = math.prod(shape) * self.dtype.itemsize
        if len(data) != expected:
            raise RequestError(
                f"input {self.name!r}: expected {expected:,} bytes for {self.datatype} {list(shape)}, found {len(data):,}",
                status=400,
            )
        return np.frombuffer(data, self.dtype).reshape(shape)

    def from_list(self, data: object, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """An array of the numbers or texts in a list, nested or not.

        Raises:
            RequestError: there are more or fewer than the dims need, or they do not fit the type.
        """
        if not isinstance(data, list):
            raise RequestError(f"input {self.name!r}: data: expected a list, found {shorten(data)}")
        flat = self._flat(data, len(shape))
        self._check_count(len(flat), shape)
        if self.datatype == "BYTES":
            try:
                return to_strings(flat, shape)
            except UnicodeEncodeError:
                raise RequestError(f"input {self.name!r}: data: text that is not Unicode") from None
        found, dtype = np.asarray(flat), self.dtype
        if found.size == 0:
            return np.empty(shape, dtype)
        if found.dtype.kind not in "bfiu" or (found.dtype.kind == "f" and dtype.kind in "iu"):  # of huge whole numbers
            raise self._unfit(data)
        if dtype.kind in "iu" and not (
            np.iinfo(dtype).min <= int(found.min()) and int(found.max()) <= np.iinfo(dtype).max
        ):
            raise RequestError(f"input {self.name!r}: data: a value lies outside of {self.datatype}")
        with np.errstate(over="ignore"):
            array = found.astype(dtype)
        if dtype.kind not in "biu" and not np.array_equal(np.isfinite(found), np.isfinite(array)):
            raise RequestError(f"input {self.name!r}: data: a value lies outside of {self.datatype}")
        return array.reshape(shape)

    def from_items(self, items: list[bytes], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """An array of strings, given one by one.

        Raises:
            RequestError: there are more or fewer than the dims need.
        """
        self._check_count(len(items), shape)
        return _strings(items, shape)

    def _check_count(self, found: int, shape: tuple[int, ...]) -> None:
        expected = math.prod(shape)
        if found != expected:
            raise RequestError(
                f"input {self.name!r}: expected {expected:,} values for {list(shape)}, found {found:,}", status=400
            )

    def _flat(self, data: list[Any], depth: int) -> list[Any]:
        """The elements of a nested list, all of the kind that the type needs.

        Their kind is looked at before NumPy sees them: it gives each string the memory of the longest.

        Raises:
            RequestError: an element is of another kind, or they are not nested alike.
        """
        allowed = _ELEMENTS.get(self.datatype, _WHOLE)
        for _ in range(max(1, depth)):
            kinds = set(map(type, data))
            if kinds != {list}:
                break
            if len(set(map(len, data))) > 1:
                raise RequestError(f"input {self.name!r}: data: lists of different lengths")
            data = list(chain.from_iterable(data))
        if not set(map(type, data)) <= allowed:
            raise self._unfit(data)
        return data

    def _unfit(self, data: object) -> RequestError:
        kinds = {"BYTES": "text", "BOOL": "true or false", **dict.fromkeys(("FP16", "BF16", "FP32", "FP64"), "numbers")}
        kind = kinds.get(self.datatype, "whole numbers")
        return RequestError(f"input {self.name!r}: data: expected {kind} for {self.datatype}, found {shorten(data)}")


def to_bytes(array: npt.NDArray[Any]) -> bytes:
    """The protocol's bytes of an array; of strings each with its length before it."""
    if array.dtype.kind != "O":
        return array.tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in array.ravel().tolist())


def read_strings(data: memoryview, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """An array of strings from all of ``data``, where each has its length before it.

    Raises:
        ValueError: there are more or fewer than the dims need.
    """
    found: list[bytes] = []
    at, end, count = 0, len(data), math.prod(shape)
    if 4 * count > end:
        raise ValueError(f"expected {count:,} strings, each with 4 bytes of its length before it, found {end:,} bytes")
    for _ in range(count):
        size = int.from_bytes(data[at : at + 4], "little")
        at += 4 + size
        if at > end:
            break
        found.append(bytes(data[at - size : at]))
    if at != end or len(found) != count:
        raise ValueError(f"expected {count:,} strings in {end:,} bytes, found that their lengths say otherwise")
    return _strings(found, shape)


def to_strings(values: Iterable[str], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """An array of strings, which the protocol calls BYTES."""
    return _strings([value.encode() for value in values], shape)


def as_strings(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of NumPy's strings, or of objects that are bytes or text, as the protocol's strings.

    Raises:
        ValueError: an object is something else.
    """
    values = array.ravel().tolist()
    if not set(map(type, values)) <= {bytes, str}:
        raise ValueError(f"expected numbers, bytes or text, found an array of {shorten(values)}")
    return _strings([value.encode() if isinstance(value, str) else value for value in values], array.shape)


def _strings(values: Sequence[bytes], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    made = np.empty(len(values), object)
    made[:] = values
    return made.reshape(shape)


def is_datatype(dtype: np.dtype[Any]) -> bool:
    """Whether the protocol has a name for a type of NumPy's; `datatype_of` gives it."""
    if dtype not in _FOUND:
        try:
            datatype_of(np.empty(0, dtype))
        except (KeyError, PluginError):
            return False
    return True


def datatype_of(array: npt.NDArray[Any]) -> str:
    """The protocol's name of an array's type."""
    found = _FOUND.get(array.dtype)
    if found is None:
        found = _FOUND[array.dtype] = "BYTES" if array.dtype.kind == "O" else _NAMES[DType.of(array)]
    return found
