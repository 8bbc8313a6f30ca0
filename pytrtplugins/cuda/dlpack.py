"""Reads DLPack's description of an array on a GPU in place, without taking ownership of the array."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

__all__ = ["read_dlpack"]

_CUDA = 2
_HEAD = struct.Struct("=QiiiIQQQ")
"""DLTensor, dlpack.h: data, device's type and number, dims, element type, shape, strides, bytes in front of the first element."""
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def read_dlpack(array: Any, stream: int) -> tuple[int, tuple[Any, ...]] | None:
    """Address and form of an array, and let a stream wait for the work that its library has queued on it.

    Args:
        array: Of any library with ``__dlpack__``.
        stream: The stream's number, as DLPack has it: 1 is the default one.

    Returns:
        Equal forms have equal dims, element type, strides and GPU; None where the array does not lie on one, or its library refuses.
    """
    try:
        capsule = array.__dlpack__(stream=stream)
        tensor = _pointer(capsule, b"dltensor")
    except Exception:  # what a library raises is its own affair
        return None
    address, device, number, dims, element, shape, strides, offset = _HEAD.unpack(ctypes.string_at(tensor, _HEAD.size))
    if device != _CUDA:
        return None
    lengths = ctypes.string_at(shape, 8 * dims)
    steps = ctypes.string_at(strides, 8 * dims) if strides else None
    return address + offset, (number, element, lengths, steps)
