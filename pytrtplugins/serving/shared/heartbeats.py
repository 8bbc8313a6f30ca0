"""Heartbeats of engine processes in memory that they share with the supervisor and the CPU processes."""

from __future__ import annotations

from collections.abc import MutableSequence

__all__ = ["Heartbeats"]


class Heartbeats:
    """The deadline of each engine process's next heartbeat, and how often a hung one was killed.

    Args:
        numbers: Memory of `width` numbers for each engine process.
    """

    width = 2

    def __init__(self, numbers: MutableSequence[int] | memoryview) -> None:
        self._numbers = numbers

    def expect(self, index: int, until_s: float) -> None:
        """Say when the next sign comes at the latest (`time.monotonic`); the process alone calls it."""
        self._numbers[self.width * index] = int(1e9 * until_s)

    def begin(self, index: int) -> None:
        """Expect nothing of a process that is being started."""
        self._numbers[self.width * index] = 0

    def is_late(self, index: int, now_s: float) -> bool:
        """Whether a process has missed its deadline."""
        return 0 < self._numbers[self.width * index] < 1e9 * now_s

    def end(self, index: int) -> None:
        """Count a process that is ended since it hangs; the supervisor calls it before it ends the process."""
        self.begin(index)
        self._numbers[self.width * index + 1] += 1

    def kill_count(self, index: int) -> int:
        """How often a process was killed because it hung."""
        return self._numbers[self.width * index + 1]
