"""Launches on NumPy arrays that are watched: each access of a kernel, and the order of its threads.

`check_plugin` runs kernels so, in a process of its own. A defect is a `KernelError` that names the line, the thread and the
element; ``.defect`` is what it is called. Outside of `watching` nothing here has any effect.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ORDERS", "Plan", "Region", "Watch", "current", "watching"]

ORDERS = ("forward", "backward", "random")
"""In which order the threads between two barriers, and the blocks, may run."""


@dataclass(frozen=True)
class Region:
    """Memory that kernels may touch, between guard pages.

    Attributes:
        name: What messages call it: ``"input 0"``.
        dims: Its dims.
        dtype: Its element type.
        low: Address of the guard pages before it.
        high: Address behind the guard pages after it.
        data: Address of its first element.
        read_only: Whether writing is a defect.
        track: Whether to remember who touched each byte; takes 17 times its size.
    """

    name: str
    dims: tuple[int, ...]
    dtype: Any
    low: int
    high: int
    data: int
    read_only: bool
    track: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        size = int(self.dtype.itemsize)
        for dim in self.dims:
            size *= dim
        return size


@dataclass
class Watch:
    """How to run launches, and what was seen.

    Attributes:
        regions: The memory that is known.
        order: One of `ORDERS`.
        seed: Of the random order.
        pattern: The byte that fills shared memory before each block.
        races: Whether two threads that touch one byte between two barriers are a defect.
        sample: Run at most this many blocks of a launch, the first and the last among them; 0 for all.
        unset: What kernels read before anything wrote it: a sentence, empty for nothing.
        watched: How many launches were watched.
        unwatched: How many ran without, because the C++ compiler cannot do it.
    """

    regions: Sequence[Region] = ()
    order: str = "forward"
    seed: int = 1
    pattern: int = 0xFF
    races: bool = False
    sample: int = 0
    unset: str = ""
    watched: int = 0
    unwatched: int = 0
    memory: dict[str, Any] = field(default_factory=dict, repr=False)

    def fill(self, plan: Plan) -> Any:
        """Write into a kernel's plan what it is to do; returns what must live as long."""
        rows = (_Region * max(1, len(self.regions)))()
        for row, region in zip(rows, self.regions, strict=False):
            row.low, row.high, row.data, row.bytes = region.low, region.high, region.data, region.nbytes
            row.read_only = region.read_only
            if region.track and not region.read_only:
                row.written = self._memory(region.name + " written", region.nbytes)
            if region.track and self.races:
                row.cells = self._memory(region.name + " cells", 16 * region.nbytes)
        plan.regions, plan.count = ctypes.addressof(rows), len(self.regions)
        plan.order, plan.seed, plan.pattern = ORDERS.index(self.order), self.seed, self.pattern
        plan.sample, plan.races = self.sample, self.races
        return rows

    def _memory(self, name: str, size: int) -> int:
        """Address of zeros that live as long as the watch."""
        if name not in self.memory:
            self.memory[name] = ctypes.create_string_buffer(max(1, size))
        return ctypes.addressof(self.memory[name])


class _Region(ctypes.Structure):
    """As in host_watch.cpp."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("low", "high", "data")),
        ("bytes", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in ("cells", "written")),
        ("read_only", ctypes.c_int64),
    ]


class Finding(ctypes.Structure):
    """As in host_watch.cpp."""

    _numbers = ("kind", "region", "offset", "size", "writes", "thread", "other", "block", "place", "signal", "line")
    _fields_ = [*((name, ctypes.c_int64) for name in _numbers), ("address", ctypes.c_uint64), ("text", ctypes.c_char_p)]


class Plan(ctypes.Structure):
    """As in host_watch.cpp."""

    _fields_ = [
        ("regions", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("order", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("pattern", ctypes.c_int64),
        ("sample", ctypes.c_int64),
        ("races", ctypes.c_int64),
        ("found", Finding),
        ("unset", Finding),
    ]


class _Current(threading.local):
    watch: Watch | None = None


_current = _Current()


def current() -> Watch | None:
    """How launches of this thread are watched now; None where they are not."""
    return _current.watch


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """Watch all launches on NumPy arrays inside the block, in this thread."""
    before, _current.watch = _current.watch, watch
    try:
        yield watch
    finally:
        _current.watch = before
