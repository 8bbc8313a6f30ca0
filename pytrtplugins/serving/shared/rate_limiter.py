"""Rate and concurrency limits of keys, across all processes of a server."""

from __future__ import annotations

import mmap
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...errors import RequestError
from .anonymous_memory import anonymous_memory

if sys.platform != "win32":
    import fcntl

__all__ = ["MOST_KEYS", "RateLimiter"]

MOST_KEYS = 1024
_WAIT_S = 1.0  # for a client that has too many requests at a time


class RateLimiter:
    """Rates and concurrent requests, by names of keys.

    A rate is a leaky bucket: for each key the time at which it would be empty (GCRA). That time, whose it is, and how many requests each
    process has, are in memory that all processes share; a lock on a few bytes of it, which ends with the process that has it, covers each
    change. A key that gets the place of another, since the file of keys has changed, begins with an empty bucket.

    Args:
        descriptor: Memory that `create` made; None: this process is alone.
        processes: How many share it.
        own: The number of this process; what a process of this number counted before is forgotten.
    """

    def __init__(self, descriptor: int | None = None, processes: int = 1, own: int = 0) -> None:
        size = self.size(processes)
        self._descriptor = descriptor
        memory = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._numbers, self._processes, self._own = memoryview(memory).cast("q"), processes, own
        self._places: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self.name([])

    @staticmethod
    def size(processes: int) -> int:
        """Bytes of memory for so many processes."""
        return 8 * MOST_KEYS * (2 + processes)

    @classmethod
    def create(cls, processes: int) -> int:
        """Create shared memory for several processes; returns its descriptor."""
        return anonymous_memory("pytrt-keys", cls.size(processes))

    def name(self, names: Sequence[str]) -> None:
        """Say which keys there are, in the same order in all processes."""
        self._places = {name: place for place, name in enumerate(names)}
        row = MOST_KEYS * (1 + self._own)
        for place in range(MOST_KEYS):
            self._numbers[row + place] = 0
        for name, place in self._places.items():
            self._numbers[row + place] = self._counts[name]

    def take(self, name: str, rate: float | None, burst: int, concurrent: int | None) -> None:
        """Count a request of a key, which `give_back` ends.

        Args:
            name: Of the key.
            rate: Requests a second; None: any.
            burst: Requests that may come at once.
            concurrent: Requests at a time; None: any.

        Raises:
            RequestError: that would be too many (429).
        """
        place = self._places[name]
        with self._lock(place):
            if concurrent is not None:
                running = sum(self._numbers[MOST_KEYS * (1 + process) + place] for process in range(self._processes))
                if running >= concurrent:
                    raise _too_many(name, f"{concurrent} requests at a time", _WAIT_S)
            self._charge(name, place, rate, burst)
            self._counts[name] += 1
            self._numbers[MOST_KEYS * (1 + self._own) + place] = self._counts[name]

    def charge(self, name: str, rate: float | None, burst: int) -> None:
        """Count a further request of one that was taken, such as in a stream.

        Raises:
            RequestError: that would be too many (429).
        """
        place = self._places.get(name)
        if place is not None:  # else the key is gone since
            with self._lock(place):
                self._charge(name, place, rate, burst)

    def _charge(self, name: str, place: int, rate: float | None, burst: int) -> None:
        if rate is None:
            return
        now, step = time.monotonic_ns(), int(1e9 / rate)
        owner, whose = MOST_KEYS * (1 + self._processes) + place, _number(name)
        last = self._numbers[place] if self._numbers[owner] == whose else 0
        empty = max(last, now) + step
        early = empty - now - burst * step
        if early > 0:
            raise _too_many(name, f"{rate:g} requests a second", early * 1e-9)
        self._numbers[place], self._numbers[owner] = empty, whose

    def give_back(self, name: str) -> None:
        """End a request."""
        self._counts[name] -= 1
        place = self._places.get(name)
        if place is not None:  # else the key is gone since
            self._numbers[MOST_KEYS * (1 + self._own) + place] = self._counts[name]

    @contextmanager
    def _lock(self, place: int) -> Iterator[None]:
        if self._descriptor is None:
            yield
            return
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 8, 8 * place)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 8, 8 * place)


def _too_many(name: str, limit: str, wait_s: float) -> RequestError:
    return RequestError(f"key {name!r} allows {limit}", status=429, retry_after=max(1, -int(-wait_s // 1)))


def _number(name: str) -> int:
    """A slot number for a name, equal in all processes and nearly always unique."""
    return zlib.crc32(name.encode()) + 1
