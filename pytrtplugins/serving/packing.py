"""Arrays by name in shared memory: a checked form without pickle.

    count of arrays, then for each: length of the name, type, number of dims, offset of the values, bytes of them, dims, name; then
    the values, each at a multiple of 64 bytes

Everything is little-endian; offsets count from the beginning of the form. Strings lie there as the Open Inference Protocol has them,
each with its length before it.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..tensor import DType
from .model import Arrays
from .tensors import read_strings, to_bytes

__all__ = ["pack", "packed_bytes", "unpack"]

_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<HBBQQ")
_DIMS = tuple(struct.Struct(f"<{count}Q") for count in range(33))
_ALIGNED = 64
_DTYPES = tuple(DType)
_STRINGS = 255
_NUMBERS: dict[np.dtype[Any], int] = {np.dtype(object): _STRINGS}
_MOST = 1024  # arrays


def _number(dtype: np.dtype[Any]) -> int:
    found = _NUMBERS.get(dtype)
    if found is None:
        found = _NUMBERS[dtype] = _DTYPES.index(DType.of(dtype))
    return found


def _round(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _size(array: npt.NDArray[Any]) -> int:
    if array.dtype.kind == "O":
        return sum(4 + len(text) for text in array.ravel().tolist())
    return array.nbytes


def _head_bytes(arrays: Arrays) -> int:
    names = sum(len(name.encode()) + 8 * array.ndim for name, array in arrays.items())
    return _round(_COUNT.size + len(arrays) * _HEAD.size + names)


def packed_bytes(arrays: Arrays) -> int:
    """Bytes that `pack` writes."""
    return _head_bytes(arrays) + sum(_round(_size(array)) for array in arrays.values())


def pack(arrays: Arrays, into: memoryview) -> int:
    """Write arrays, and give the bytes that they take; ``into`` has as many as `packed_bytes` says."""
    _COUNT.pack_into(into, 0, len(arrays))
    at, start = _COUNT.size, _head_bytes(arrays)
    for name, array in arrays.items():
        encoded, size = name.encode(), _size(array)
        _HEAD.pack_into(into, at, len(encoded), _number(array.dtype), array.ndim, start, size)
        at += _HEAD.size
        _DIMS[array.ndim].pack_into(into, at, *array.shape)
        at += 8 * array.ndim
        into[at : at + len(encoded)] = encoded
        at += len(encoded)
        if array.dtype.kind == "O":
            into[start : start + size] = to_bytes(array)
        elif size:
            np.frombuffer(into, array.dtype, array.size, start).reshape(array.shape)[...] = array
        start += _round(size)
    return start


def unpack(data: memoryview) -> Arrays:
    """Arrays over what `pack` wrote; nothing is copied.

    Raises:
        FormatError: the bytes are something else.
    """
    try:
        (count,) = _COUNT.unpack_from(data, 0)
        if count > _MOST:
            raise FormatError(f"packed arrays: expected {_MOST} at most, found {count}")
        at, arrays = _COUNT.size, {}
        for _ in range(count):
            length, number, rank, start, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            shape = _DIMS[rank].unpack_from(data, at)
            at += 8 * rank
            name = str(data[at : at + length], "utf-8")
            at += length
            elements, inside = math.prod(shape), start + size <= len(data) and not start % _ALIGNED
            if number == _STRINGS and inside:
                arrays[name] = read_strings(data[start : start + size], shape)
                continue
            dtype = _DTYPES[number].numpy
            if size != elements * dtype.itemsize or not inside:
                raise FormatError(f"packed array {name!r}: its dims {shape} and its place do not fit")
            arrays[name] = np.frombuffer(data, dtype, elements, start).reshape(shape)
        return arrays
    except FormatError:
        raise
    except (struct.error, IndexError, ValueError) as error:
        raise FormatError(f"packed arrays: damaged ({error})") from error
