"""Arrays between guard pages: an access to these pages ends the process."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..cuda.watch import Region
from ..errors import PluginError, UnavailableError

__all__ = ["ALIGNMENT", "GUARD_BYTES", "Memory"]

ALIGNMENT = 16
"""Bytes: what engines promise for the start of an array, and the widest access of a kernel."""
GUARD_BYTES = 16 << 20
_NO_ACCESS, _READ, _READ_WRITE = 0, 1, 3
_PRIVATE, _NO_RESERVE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0x4000
_NO_HUGE_PAGES = 15
_CANARY = 0xC5


class _Block(NamedTuple):
    region: Region
    start: int  # of the pages that may be touched
    size: int


class Memory:
    """Arrays of one run, each with guard pages on both sides.

    Around an array, up to its guard pages, stands a pattern; `damage` says where it has changed.

    Args:
        at_end: Whether arrays end at the guard pages behind them, as far as their alignment lets them; else they begin right
            behind the guard pages before them.
        guard_bytes: How far from an array an access is still caught.
        track: As for `Region`.
        sparse: Whether arrays may be larger than the machine's memory: they get it where they are touched, page by page, and
            nothing is written around them.

    Raises:
        UnavailableError: the system gives no such memory.
    """

    def __init__(
        self, *, at_end: bool, guard_bytes: int = GUARD_BYTES, track: bool = True, sparse: bool = False
    ) -> None:
        self._libc = _libc()
        self._at_end, self._guard, self._track, self._sparse = at_end, guard_bytes, track, sparse
        self._blocks: list[_Block] = []

    def array(self, name: str, dims: Sequence[int], dtype: Any, *, read_only: bool = False) -> Any:
        """A new array of zeros; a kernel that writes into one that is read-only is stopped."""
        dtype = np.dtype(dtype)
        used = math.prod(map(int, dims)) * dtype.itemsize
        size = max(1, -(-used // mmap.PAGESIZE)) * mmap.PAGESIZE
        low = self._libc.mmap(None, size + 2 * self._guard, _NO_ACCESS, _PRIVATE | _NO_RESERVE, -1, 0)
        if low in (None, ctypes.c_void_p(-1).value):
            raise UnavailableError(f"the system refuses {size + 2 * self._guard} bytes of addresses")
        start = low + self._guard
        if self._libc.mprotect(start, size, _READ_WRITE):
            self._libc.munmap(low, size + 2 * self._guard)
            raise UnavailableError(f"the system refuses {size} bytes of memory")
        data = start + (size - -(-used // ALIGNMENT) * ALIGNMENT if self._at_end else 0)
        region = Region(name, tuple(dims), dtype, low, start + size + self._guard, data, read_only, self._track)
        block = _Block(region, start, size)
        self._blocks.append(block)
        if self._sparse:
            self._libc.madvise(start, size, _NO_HUGE_PAGES)
        else:
            for slack in self._slack(block):
                slack[...] = _CANARY
        return _view(data, used).view(dtype).reshape(dims)

    def protect(self) -> None:
        """Write-protect the read-only arrays: a write ends the process."""
        for block in self._blocks:
            if block.region.read_only:
                self._libc.mprotect(block.start, block.size, _READ)

    @property
    def regions(self) -> list[Region]:
        """The arrays, as launches are watched with."""
        return [block.region for block in self._blocks]

    def damage(self) -> str:
        """Which array was written outside its elements, and where; empty if none was."""
        for block in () if self._sparse else self._blocks:
            before, behind = self._slack(block)
            region = block.region
            for slack, first in ((before, -len(before)), (behind, region.nbytes)):
                if slack.tobytes().count(_CANARY) == len(slack):
                    continue
                wrong = np.flatnonzero(slack != _CANARY)
                offset = first + int(wrong[-1] if first < 0 else wrong[0])
                element = offset // region.dtype.itemsize
                size = region.nbytes // region.dtype.itemsize
                off_by_one = ", off by one" if element in (-1, size) else ""
                return (
                    f"out-of-bounds write{off_by_one}: element {element} of {region.name} ({region.dtype}{list(region.dims)}, "
                    f"elements 0 to {size - 1}) was written"
                )
        return ""

    def close(self) -> None:
        """Free the memory; the arrays must not be used any more."""
        for block in self._blocks:
            self._libc.munmap(block.region.low, block.region.high - block.region.low)
        self._blocks = []

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None and (damage := self.damage()):
                raise PluginError(damage, defect=damage.partition(":")[0])
        finally:
            self.close()

    def _slack(self, block: _Block) -> tuple[Any, Any]:
        region = block.region
        behind = region.data + region.nbytes
        return _view(block.start, region.data - block.start), _view(behind, block.start + block.size - behind)


@functools.cache
def _libc() -> Any:
    """The system's functions for memory, with their types."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _view(address: int, size: int) -> Any:
    memory = (ctypes.c_uint8 * max(1, size)).from_address(address)
    return np.frombuffer(memoryview(memory), np.uint8, size)  # empty ones have the address too
