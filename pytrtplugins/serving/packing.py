"""Arrays by name in shared memory: a checked form without pickle.

    count of arrays, then for each: length of the name, type, number of dims, offset of the values, bytes of them, dims, name; then
    the values, each at a multiple of 64 bytes

Everything is little-endian; offsets count from the beginning of the form.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from ..errors import FormatError
from ..tensor import DType
from .model import Arrays

__all__ = ["pack", "packed_bytes", "unpack"]

_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<HBBQQ")
_DIMS = tuple(struct.Struct(f"<{count}Q") for count in range(33))
_ALIGNED = 64
_DTYPES = tuple(DType)
_NUMBERS: dict[np.dtype[Any], int] = {}
_MOST = 1024  # arrays


def _number(dtype: np.dtype[Any]) -> int:
    found = _NUMBERS.get(dtype)
    if found is None:
        found = _NUMBERS[dtype] = _DTYPES.index(DType.of(dtype))
    return found


def _round(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _head_bytes(arrays: Arrays) -> int:
    names = sum(len(name.encode()) + 8 * array.ndim for name, array in arrays.items())
    return _round(_COUNT.size + len(arrays) * _HEAD.size + names)


def packed_bytes(arrays: Arrays) -> int:
    """Bytes that `pack` writes."""
    return _head_bytes(arrays) + sum(_round(array.nbytes) for array in arrays.values())


def pack(arrays: Arrays, into: memoryview) -> int:
    """Write arrays, and give the bytes that they take; ``into`` has as many as `packed_bytes` says."""
    _COUNT.pack_into(into, 0, len(arrays))
    at, start = _COUNT.size, _head_bytes(arrays)
    for name, array in arrays.items():
        encoded, size = name.encode(), array.nbytes
        _HEAD.pack_into(into, at, len(encoded), _number(array.dtype), array.ndim, start, size)
        at += _HEAD.size
        _DIMS[array.ndim].pack_into(into, at, *array.shape)
        at += 8 * array.ndim
        into[at : at + len(encoded)] = encoded
        at += len(encoded)
        if size:
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
            dtype = _DTYPES[number].numpy
            if size != math.prod(shape) * dtype.itemsize or start + size > len(data) or start % _ALIGNED:
                raise FormatError(f"packed array {name!r}: its dims {shape} and its place do not fit")
            arrays[name] = np.frombuffer(data, dtype, math.prod(shape), start).reshape(shape)
        return arrays
    except FormatError:
        raise
    except (struct.error, IndexError, ValueError) as error:
        raise FormatError(f"packed arrays: damaged ({error})") from error
