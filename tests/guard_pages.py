"""Arrays beside a page of memory that nobody may touch: code that reads or writes past an end of them ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_PAGE = mmap.PAGESIZE
_PROT_NONE = 0


def guarded(array: npt.NDArray[Any], *, before: bool = False) -> npt.NDArray[Any]:
    """A writable copy of an array that ends at a protected page, or begins behind one; the page on its other side is protected, too."""
    size = max(1, -(-array.nbytes // _PAGE)) * _PAGE
    memory = mmap.mmap(-1, size + 2 * _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    offset = _PAGE if before else _PAGE + size - array.nbytes
    copy: npt.NDArray[Any] = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    _protect(address)
    _protect(address + _PAGE + size)
    return copy


def _protect(address: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(_PAGE), _PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
