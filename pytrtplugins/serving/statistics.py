"""Counts of what was served, which several processes may add to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import MutableSequence, Sequence

__all__ = ["BUCKETS_S", "Statistics"]

BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper bounds of the histogram of durations; one more holds the rest."""

_NAMES = ("succeeded", "failed", "refused", "late", "rows", "batches", "total_ns", "queue_ns", "compute_ns")
_FIELDS = {name: index for index, name in enumerate(_NAMES)}


class Statistics:
    """Counts of one model: a row of whole numbers for each process, which alone writes it.

    Args:
        rows: Memory of `width` numbers for each process; None: of this one alone.
        own: The row of this process.
    """

    width = len(_NAMES) + len(BUCKETS_S) + 1

    def __init__(self, rows: Sequence[MutableSequence[int] | memoryview] | None = None, own: int = 0) -> None:
        self._rows = rows or [[0] * self.width]
        self._own = self._rows[own]

    @classmethod
    def shared(cls, memory: memoryview, processes: int, models: int, own: int) -> list[Statistics]:
        """Those of each model, in memory of ``8 * width * processes * models`` bytes that several processes have."""
        numbers, width = memory.cast("q"), cls.width
        rows = [
            [numbers[width * (process * models + model) :][:width] for process in range(processes)]
            for model in range(models)
        ]
        return [cls(each, own) for each in rows]

    def succeeded(self, rows: int, leads: bool, total_s: float, queue_s: float, compute_s: float) -> None:
        """Count a request that was answered; ``leads``: it is the first of its batch."""
        own = self._own
        own[0] += 1
        own[4] += rows
        own[5] += leads
        own[6] += int(1e9 * total_s)
        own[7] += int(1e9 * queue_s)
        own[8] += int(1e9 * compute_s)
        own[9 + bisect_left(BUCKETS_S, total_s)] += 1

    def failed(self, status: int) -> None:
        """Count a request that got an error, with HTTP's code of it."""
        self._own[_FIELDS["late" if status == 504 else "refused" if status in (429, 503) else "failed"]] += 1

    def total(self) -> dict[str, int]:
        """The counts of all processes, by name."""
        return {name: sum(row[index] for row in self._rows) for name, index in _FIELDS.items()}

    def durations(self) -> list[int]:
        """Requests in each bucket of durations, of all processes."""
        return [sum(row[index] for row in self._rows) for index in range(len(_NAMES), self.width)]
