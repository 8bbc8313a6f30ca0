"""Serialize arrays by name into shared memory: a checked format without pickle.

    bytes of the head, count of arrays, then for each: length of the name, type, number of dims, offset of the values, bytes of them, dims,
    name; then the values, each at a multiple of 64 bytes

Everything is little-endian; offsets count from the beginning of the form. Requests for a model mostly have the same head: it is made and
read once, and then looked up. Strings lie there as the Open Inference Protocol has them, each with its length before it.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ...tensor import DType
from ..model.model import Arrays
from ..model.tensors import read_strings, to_bytes

__all__ = ["pack", "packed_bytes", "unpack"]

_BEGIN = struct.Struct("<II")
_HEAD = struct.Struct("<HBBQQ")
_DIMS = tuple(struct.Struct(f"<{count}Q") for count in range(33))
_ALIGNED = 64
_DTYPES = tuple(DType)
_STRINGS = 255
_OBJECT = np.dtype(object)
_NUMBERS: dict[np.dtype[Any], int] = {_OBJECT: _STRINGS}
_MOST = 1024  # arrays
_KEPT, _KEPT_BYTES = 256, 1024  # heads that are kept, and how long these may be


class _Layout(NamedTuple):
    """Offsets, dtypes and shapes of all arrays.

    Attributes:
        head: What stands before the values.
        places: Of each array its name, type, dims, offset and bytes.
        size: Of all.
    """

    head: bytes
    places: list[tuple[str, np.dtype[Any], tuple[int, ...], int, int]]
    size: int


_MADE: dict[object, _Layout] = {}
_READ: dict[bytes, _Layout] = {}


def packed_bytes(arrays: Arrays) -> int:
    """Bytes that `pack` writes."""
    return _layout(arrays).size


def pack(arrays: Arrays, into: memoryview) -> int:
    """Write arrays into ``into``, which has `packed_bytes` bytes; returns the number of bytes written."""
    layout = _layout(arrays)
    into[: len(layout.head)] = layout.head
    for name, dtype, shape, start, size in layout.places:
        if dtype is _OBJECT:
            into[start : start + size] = to_bytes(arrays[name])
        else:
            np.ndarray(shape, dtype, into, start)[...] = arrays[name]
    return layout.size


def unpack(data: memoryview) -> Arrays:
    """Arrays over what `pack` wrote; nothing is copied."""
    try:
        layout = _read(data)
        if layout.size > len(data):
            raise FormatError(f"packed arrays: expected {layout.size:,} bytes, found {len(data):,}")
        return {
            name: read_strings(data[start : start + size], shape)
            if dtype is _OBJECT
            else np.ndarray(shape, dtype, data, start)
            for name, dtype, shape, start, size in layout.places
        }
    except FormatError:
        raise
    except (struct.error, IndexError, OverflowError, TypeError, ValueError) as error:
        raise FormatError(f"packed arrays: damaged ({error})") from error


def _number(dtype: np.dtype[Any]) -> int:
    number = _NUMBERS.get(dtype)
    if number is None:
        number = _NUMBERS[dtype] = _DTYPES.index(DType.of(dtype))
    return number


def _size(array: npt.NDArray[Any]) -> int:
    if array.dtype is _OBJECT:
        return sum(4 + len(text) for text in array.ravel().tolist())
    return array.nbytes


def _align(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _layout(arrays: Arrays) -> _Layout:
    """The layout of arrays, computed or cached."""
    key = tuple([(name, array.dtype, array.shape, _size(array)) for name, array in arrays.items()])
    layout = _MADE.get(key)
    if layout is None:
        layout = _make_layout(arrays)
        _keep(_MADE, key, layout)
    return layout


def _make_layout(arrays: Arrays) -> _Layout:
    names = [name.encode() for name in arrays]
    length = _BEGIN.size + sum(
        _HEAD.size + len(name) + 8 * array.ndim for name, array in zip(names, arrays.values(), strict=True)
    )
    parts, places, start = [_BEGIN.pack(length, len(arrays))], [], _align(length)
    for encoded, (name, array) in zip(names, arrays.items(), strict=True):
        size = _size(array)
        parts += [
            _HEAD.pack(len(encoded), _number(array.dtype), array.ndim, start, size),
            _DIMS[array.ndim].pack(*array.shape),
            encoded,
        ]
        places.append((name, array.dtype, array.shape, start, size))
        start += _align(size)
    return _Layout(b"".join(parts), places, start)


def _read(data: memoryview) -> _Layout:
    """The layout of a head, parsed or cached."""
    length, count = _BEGIN.unpack_from(data, 0)
    if length > len(data) or count > _MOST:
        raise FormatError(f"packed arrays: found {count} in a head of {length:,} bytes")
    head = bytes(data[:length])
    layout = _READ.get(head)
    if layout is not None:
        return layout
    at, places, last = _BEGIN.size, [], _align(length)
    for _ in range(count):
        characters, number, rank, start, size = _HEAD.unpack_from(head, at)
        at += _HEAD.size
        shape = _DIMS[rank].unpack_from(head, at)
        at += 8 * rank
        name = str(head[at : at + characters], "utf-8")
        at += characters
        dtype = _OBJECT if number == _STRINGS else _DTYPES[number].numpy
        fits = number == _STRINGS or size == math.prod(shape) * dtype.itemsize
        if not fits or start % _ALIGNED or start < last:
            raise FormatError(f"packed array {name!r}: its dims {shape} and its place do not fit")
        places.append((name, dtype, shape, start, size))
        last = start + _align(size)
    if at != length:
        raise FormatError(f"packed arrays: a head of {length:,} bytes that ends after {at:,}")
    layout = _Layout(head, places, last)
    _keep(_READ, head, layout)
    return layout


def _keep(layouts: dict[Any, _Layout], key: object, layout: _Layout) -> None:
    if len(layout.head) <= _KEPT_BYTES:
        if len(layouts) >= _KEPT:
            layouts.clear()
        layouts[key] = layout
