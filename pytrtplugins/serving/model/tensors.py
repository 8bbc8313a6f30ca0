"""Tensors of the Open Inference Protocol: datatype names, dims, and bytes, checked."""

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
    "unable_to_parse",
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
_INT64_MAX = (1 << 63) - 1
MAX_NESTING = 100
"""Lists within lists in a request's JSON; Triton's number."""
TOO_DEEP = f"JSON nesting depth exceeds maximum allowed limit ({MAX_NESTING})"
"""What a client is told of more."""
_WHOLE: frozenset[type] = frozenset({int})
_ELEMENTS: dict[str, frozenset[type]] = {
    "BOOL": frozenset({bool}),
    "BYTES": frozenset({str}),
    **dict.fromkeys(("FP16", "BF16", "FP32", "FP64"), frozenset({int, float})),
}
"""What JSON has to say for elements of a type; for all others whole numbers."""
_KINDS = {
    "BOOL": ("non-boolean as boolean", "true and false"),
    "BYTES": ("non-string as string", "text"),
    **dict.fromkeys(("FP16", "BF16", "FP32", "FP64"), ("non-number as double", "numbers")),
    **dict.fromkeys(
        ("UINT8", "UINT16", "UINT32", "UINT64"), ("non-unsigned-integer as unsigned-integer", "whole numbers")
    ),
}
"""How Triton calls what is not of a type, and what is."""
_WHOLE_KIND = "non-signed-integer as signed-integer", "whole numbers"


@dataclass(frozen=True)
class TensorSpec:
    """An input or output in the protocol's terms. A model may declare one to accept or return strings (``BYTES``).

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
        """The spec of an engine's tensor.

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
        """Whether a dim after the first is free, so that requests may not fit together."""
        return -1 in self.dims[1:]

    def check(self, datatype: object, shape: object, model: str) -> tuple[int, ...]:
        """Check datatype and dims of a client's tensor; returns the dims.

        Args:
            datatype: As the request says it.
            shape: As the request says it.
            model: Name of the model, for errors.

        Raises:
            RequestError: they do not, or the type is another.
        """
        if datatype != self.datatype:
            raise RequestError(
                f"inference input {self.name!r} data-type is {shorten(datatype)}, but model {model!r} expects {self.datatype!r}"
            )
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            kind = "non-unsigned-integer as unsigned-integer" if isinstance(shape, list) else "non-array as array"
            raise unable_to_parse(
                "shape", kind, shape, f"the shape of input {self.name!r} must be a list of whole numbers from 0 on"
            )
        if len(shape) == len(self.dims):
            self._check_size(shape)
        if len(shape) != len(self.dims) or not all(
            dim in (size, -1) for dim, size in zip(self.dims, shape, strict=True)
        ):
            free = ", where -1 stands for any size" if -1 in self.dims else ""
            raise RequestError(
                f"unexpected shape for input {self.name!r} for model {model!r}. "
                f"Expected {_shape(self.dims)}, got {_shape(shape)}{free}"
            )
        return tuple(shape)

    def _check_size(self, shape: list[int]) -> None:
        """Require a size that memory can hold, even if the model allows more.

        Raises:
            RequestError: it is larger.
        """
        about = f"input {self.name!r}: shape {_shape(shape)}"
        count = math.prod(shape)
        if count > _INT64_MAX:
            raise RequestError(
                f"invalid shape for {about} causes total element count to exceed maximum size of {_INT64_MAX}"
            )
        if count * self.dtype.itemsize > _INT64_MAX:
            raise RequestError(
                f"byte size overflow for input {self.name!r}: element count ({count}) * data type size ({self.dtype.itemsize}) "
                f"exceeds maximum allowed size ({_INT64_MAX})"
            )
        if math.prod(max(1, size) for size in shape) >= 1 << 48:  # beside a dim of 0, others could be anything
            raise RequestError(f"{about} is larger than any memory")
        if self.datatype == "BYTES" and count > _MOST_STRINGS:  # each takes time, however short it is
            raise RequestError(f"{about} has more than {_MOST_STRINGS:,} strings, the most of a tensor", status=413)

    def from_bytes(self, data: memoryview, shape: tuple[int, ...], model: str) -> npt.NDArray[Any]:
        """An array over bytes of the protocol: row-major, little-endian. Nothing but strings is copied.

        Raises:
            RequestError: there are more or fewer than the dims need.
        """
        if self.datatype == "BYTES":
            try:
                return read_strings(data, shape, f"inference input {self.name!r} for model {model!r}")
            except ValueError as error:
                raise RequestError(str(error)) from None
        expected = math.prod(shape) * self.dtype.itemsize
        if len(data) != expected:
            raise RequestError(
                f"input byte size mismatch for input {self.name!r} for model {model!r}. Expected {expected}, got {len(data)}: "
                f"{self.datatype} of shape {_shape(shape)}"
            )
        return np.frombuffer(data, self.dtype).reshape(shape)

    def from_list(self, data: object, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """An array of the numbers or texts in a list, nested or not.

        Raises:
            RequestError: there are more or fewer than the dims need, or they do not fit the type.
        """
        if not isinstance(data, list):
            raise unable_to_parse("data", "non-array as array", data, f"the data of input {self.name!r} must be a list")
        flat = self._flat(data)
        self._check_count(len(flat), shape)
        if self.datatype == "BYTES":
            try:
                return to_strings(flat, shape)
            except UnicodeEncodeError:
                raise self._unfit(f"input {self.name!r} has text that is not Unicode") from None
        array = self._numbers(flat)
        if array is None:
            raise self._unfit(f"a value of input {self.name!r} lies outside of the datatype {self.datatype}")
        return array.reshape(shape)

    def _numbers(self, values: list[Any]) -> npt.NDArray[Any] | None:
        """An array of numbers that are of the kind of the type; None where one lies outside of it."""
        dtype = self.dtype
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if values and not (limits.min <= min(values) and max(values) <= limits.max):
                return None
            return np.array(values, dtype)
        try:
            numbers = np.array(values, np.bool_ if dtype.kind == "b" else np.float64)
        except OverflowError:
            return None
        with np.errstate(over="ignore"):
            array = numbers.astype(dtype)
        return array if np.array_equal(np.isfinite(numbers), np.isfinite(array)) else None

    def from_items(self, items: list[bytes], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Convert strings to an array of this shape.

        Raises:
            RequestError: there are more or fewer than the dims need.
        """
        self._check_count(len(items), shape)
        return _strings(items, shape)

    def _check_count(self, count: int, shape: tuple[int, ...]) -> None:
        expected = math.prod(shape)
        if count != expected:
            raise self._unfit(
                f"Shape does not match true shape of 'data' field: input {self.name!r} of shape {_shape(shape)} has {expected:,} values; "
                f"the request has {count:,}"
            )

    def _flat(self, data: list[Any]) -> list[Any]:
        """The elements of a nested list, all of the kind that the type needs.

        Their kind is looked at before NumPy sees them: it gives each string the memory of the longest.

        Raises:
            RequestError: an element is of another kind, or they are not nested alike.
        """
        allowed = _ELEMENTS.get(self.datatype, _WHOLE)
        for _ in range(MAX_NESTING):
            kinds = set(map(type, data))
            if kinds <= allowed:
                return data
            if kinds != {list}:
                kind, values = _KINDS.get(self.datatype, _WHOLE_KIND)
                raise unable_to_parse("data", kind, data, f"{self.datatype} of input {self.name!r} takes {values}")
            if len(set(map(len, data))) > 1:
                raise self._unfit(f"input {self.name!r} has lists of different lengths")
            data = list(chain.from_iterable(data))
        raise RequestError(TOO_DEEP)

    def _unfit(self, reason: str) -> RequestError:
        return RequestError(f"Unable to parse 'data': {reason}")


def unable_to_parse(name: str, kind: str, value: object, rule: str) -> RequestError:
    """A member of a request's JSON that is of another kind; the first words are Triton's.

    Args:
        name: Of the member.
        kind: How Triton calls what was expected and is not there.
        value: As the request has it; None: it does not.
        rule: What the member must be.
    """
    access = (
        f"attempt to access non-existing object member {name!r}" if value is None else f"attempt to access JSON {kind}"
    )
    return RequestError(f"Unable to parse {name!r}: {access}: {rule}; the request has {shorten(value)}")


def _shape(sizes: Sequence[int]) -> str:
    """Dims in Triton's notation; only the first ones if they are many."""
    return f"[{','.join(map(str, sizes[:16]))}{',...' * (len(sizes) > 16)}]"[:200]


def to_bytes(array: npt.NDArray[Any]) -> bytes:
    """The protocol's bytes of an array; of strings each with its length before it."""
    if array.dtype.kind != "O":
        return array.tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in array.ravel().tolist())


def read_strings(data: memoryview, shape: tuple[int, ...], where: str = "an array") -> npt.NDArray[Any]:
    """An array of strings from all of ``data``, where each has its length before it; ``where`` is what it is, for errors.

    Raises:
        ValueError: there are more or fewer than the dims need.
    """
    strings: list[bytes] = []
    at, end, count = 0, len(data), math.prod(shape)
    while at < end:
        if at + 4 > end:
            raise ValueError(
                f"incomplete string length indicator for {where}, expecting 4 bytes but only {end - at} bytes available"
            )
        if len(strings) == count:
            raise ValueError(f"unexpected number of string elements {count + 1} for {where}, expecting {count}")
        size = int.from_bytes(data[at : at + 4], "little")
        at += 4 + size
        if at > end:
            raise ValueError(
                f"expected {count} string elements for {where}, got {len(strings) + 1}: the last one says that it has {size:,} bytes, "
                f"and {end - at + size:,} follow"
            )
        strings.append(bytes(data[at - size : at]))
    if len(strings) != count:
        raise ValueError(f"expected {count} string elements for {where}, got {len(strings)}")
    return _strings(strings, shape)


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
    strings = np.empty(len(values), object)
    strings[:] = values
    return strings.reshape(shape)


def is_datatype(dtype: np.dtype[Any]) -> bool:
    """Whether the protocol has a name for a type of NumPy's; `datatype_of` gives it."""
    if dtype not in _FOUND:
        try:
            datatype_of(np.empty(0, dtype))
        except (KeyError, PluginError):
            return False
    return True


def datatype_of(array: npt.NDArray[Any]) -> str:
    """The protocol's datatype of an array."""
    datatype = _FOUND.get(array.dtype)
    if datatype is None:
        datatype = _FOUND[array.dtype] = "BYTES" if array.dtype.kind == "O" else _NAMES[DType.of(array)]
    return datatype
