"""DLPack's capsules and C functions that say of memory of the host that it lies on a GPU."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, ClassVar

import numpy as np

_DEVICE_TYPE, _BYTE_OFFSET = 8, 40
_CUDA = 2
_Describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_CurrentStream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def on_cuda(array, offset=0):
    """The capsule of a NumPy array, ``offset`` bytes behind where it says that it begins."""
    capsule = np.asarray(array).__dlpack__()
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    tensor = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, b"dltensor")
    ctypes.c_int32.from_address(tensor + _DEVICE_TYPE).value = _CUDA
    ctypes.c_uint64.from_address(tensor).value -= offset
    ctypes.c_uint64.from_address(tensor + _BYTE_OFFSET).value += offset
    return capsule


class Exchanged:
    """An array of a library that has DLPack's C functions.

    Args:
        array: NumPy's; None: the library refuses to describe it.
        device: Where it says that the array lies.
    """

    __dlpack_c_exchange_api__: Any = None
    current: ClassVar[list[int]] = [0, 0]
    """Numbers of the streams on which the library works, by the number of the GPU."""

    def __init__(self, array, device=(_CUDA, 0)):
        self.array, self.device = array, device


@_Describe
def _describe(exchanged, out):
    if exchanged.array is None:
        return -1
    array, dims = exchanged.array, exchanged.array.ndim
    exchanged.held = (ctypes.c_int64 * (2 * dims))(*array.shape, *(step // array.itemsize for step in array.strides))
    kind = {"i": 0, "u": 1, "f": 2}[array.dtype.kind]
    lists = ctypes.addressof(exchanged.held)
    element = kind | 8 * array.itemsize << 8 | 1 << 16
    values = array.ctypes.data, *exchanged.device, dims, element, lists, lists + 8 * dims, 0
    ctypes.memmove(out, struct.pack("=QiiiIQQQ", *values), 48)
    return 0


@_CurrentStream
def _current_stream(kind, number, out):
    ctypes.c_void_p.from_address(out).value = Exchanged.current[number]
    return 0


def _functions(major):
    """The library's C functions, in a version of DLPack."""
    described, asked = (ctypes.cast(function, ctypes.c_void_p).value for function in (_describe, _current_stream))
    table = ctypes.create_string_buffer(struct.pack("=IIQQQQQQ", major, 3, 0, 0, 0, 0, described, asked))
    _HELD.append(table)  # as a library holds its own
    return _capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)


_HELD: list[Any] = []
Exchanged.__dlpack_c_exchange_api__ = _functions(1)


class OfAnotherVersion(Exchanged):
    """An array of a library of the next DLPack."""

    __dlpack_c_exchange_api__ = _functions(2)
