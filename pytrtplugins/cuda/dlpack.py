"""Reads DLPack's description of an array on a GPU in place, without taking ownership of the array."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Described", "WorkStream", "exchange_reader", "read_dlpack"]

_CUDA = 2
_MAJOR = 1
"""Version of DLPack's C functions."""
_HEAD = struct.Struct("=QiiiIQQQ")
"""DLTensor, dlpack.h: data, device's type and number, dims, element type, shape, strides, bytes in front of the first element."""
_Head = ctypes.c_char * _HEAD.size
_CALLS = struct.Struct("=IIQQQQQQ")
"""DLPackExchangeAPI: version, the one before; then functions, of which the last two describe an array and name a stream."""
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_Describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_CurrentStream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)

Described = tuple[int, tuple[Any, ...]]
"""An array's address and form. Equal forms have equal GPU, element type, dims and strides."""


class WorkStream(NamedTuple):
    """Asks a library for the stream on which it queues its work now; equal where library and GPU are.

    Attributes:
        ask: Address of its C function.
        number: Of the GPU.
    """

    ask: int
    number: int

    def current(self) -> int:
        """The stream's number."""
        found = ctypes.c_void_p()
        _CurrentStream(self.ask)(_CUDA, self.number, ctypes.addressof(found))
        return found.value or 0


def read_dlpack(array: Any, stream: int) -> Described | None:
    """Address and form of an array, and let a stream wait for the work that its library has queued on it.

    Args:
        array: Of any library with ``__dlpack__``.
        stream: The stream's number, as DLPack has it: 1 is the default one.

    Returns:
        None where the array does not lie on a GPU, or its library refuses.
    """
    try:
        capsule = array.__dlpack__(stream=stream)
        tensor = _pointer(capsule, b"dltensor")
    except Exception:  # what a library raises is its own affair
        return None
    return _described(_Head.from_address(tensor).raw)


def exchange_reader(kind: type) -> Callable[[Any], tuple[Described, WorkStream] | None] | None:
    """Make a reader of arrays of a class by DLPack 1.2's C exchange functions, without capsules or stream waits.

    Args:
        kind: The class.

    Returns:
        A function that gives an array's address and form, and what asks for the stream that its library writes it on; None for
        an array that does not lie on a GPU, or that the library refuses. None where it has no such functions.
    """
    try:
        address = _pointer(kind.__dlpack_c_exchange_api__, b"dlpack_exchange_api")  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return None
    major, *_, describe, ask = _CALLS.unpack(_bytes_at(_CALLS.size, address))
    if major != _MAJOR or not (describe and ask):
        return None
    fill, streams = _Describe(describe), functools.cache(lambda number: WorkStream(ask, number))

    def read(array: Any) -> tuple[Described, WorkStream] | None:
        head = _Head()  # not kept: threads may read at the same time
        try:
            fill(array, ctypes.addressof(head))
        except Exception:  # likewise
            return None
        described = _described(head.raw)
        return None if described is None else (described, streams(described[1][0]))

    return read


def _described(head: bytes) -> Described | None:
    address, device, number, dims, element, shape, strides, offset = _HEAD.unpack(head)
    if device != _CUDA:
        return None
    size = 8 * dims
    return address + offset, (number, element, _bytes_at(size, shape), _bytes_at(size, strides) if strides else None)


def _bytes_at(size: int, address: int | None) -> bytes:
    found: bytes = _view_of(size)(address).raw
    return found


@functools.cache
def _view_of(size: int) -> Callable[[Any], Any]:
    """A ctypes function that views this many bytes at an address, three times as fast as `ctypes.string_at`."""
    return (ctypes.c_char * size).from_address
