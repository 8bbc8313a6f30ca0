"""Request counts, written by several processes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, MutableSequence, Sequence

from .heartbeats import Heartbeats

__all__ = ["BATCHES", "BUCKETS_S", "ROLES", "Counts", "Processes", "Statistics"]

BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper bounds of the histogram of durations; one more bucket holds the rest."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds of the histogram of the rows of batches; one more bucket holds the rest."""
ROLES = ("cpu", "engine")
"""What a process of a server is: CPU processes speak HTTP, engine processes have the models."""

_NAMES = (
    *("succeeded", "failed", "refused", "late", "rows", "batches", "total_ns", "queue_ns", "compute_ns"),
    *(
        "plain",
        "preprocess_ns",
        "postprocess_ns",
        "on_device",
    ),  # of requests that went through `preprocess` and `postprocess`
    *("in_flight", "waiting"),  # now, not since the start
)
_FIELDS = {name: index for index, name in enumerate(_NAMES)}
_IN_FLIGHT, _WAITING = _FIELDS["in_flight"], _FIELDS["waiting"]
_DURATIONS = len(_NAMES)
_ROWS = _DURATIONS + len(BUCKETS_S) + 1

Row = MutableSequence[int] | memoryview


class Statistics:
    """Counts of one model: one row of integers per process, which alone writes it.

    Args:
        rows: Memory of `width` numbers for each process; None: of this one alone.
        own: The row of this process.
    """

    width = _ROWS + len(BATCHES) + 1

    def __init__(self, rows: Sequence[Row] | None = None, own: int = 0) -> None:
        self._rows = rows or [[0] * self.width]
        self._own = self._rows[own]
        self._own[_IN_FLIGHT] = self._own[_WAITING] = 0  # what a process that died had is not here

    def began(self) -> None:
        """Count a request as in flight; `ended` must follow."""
        self._own[_IN_FLIGHT] += 1

    def ended(self) -> None:
        """Count a request as answered, successfully or not."""
        self._own[_IN_FLIGHT] -= 1

    def waits(self, requests: int) -> None:
        """Say how many requests wait in the queue of this process."""
        self._own[_WAITING] = requests

    def succeeded(self, rows: int, batch_rows: int, total_s: float, queue_s: float, compute_s: float) -> None:
        """Count a request that got its outputs; ``batch_rows`` is 0 unless it is the first of its batch, so that each batch counts once."""
        own = self._own
        own[0] += 1
        own[4] += rows
        own[6] += int(1e9 * total_s)
        own[7] += int(1e9 * queue_s)
        own[8] += int(1e9 * compute_s)
        own[_DURATIONS + bisect_left(BUCKETS_S, total_s)] += 1
        if batch_rows:
            own[5] += 1
            own[_ROWS + bisect_left(BATCHES, batch_rows)] += 1

    def answered(self, preprocess_s: float, postprocess_s: float, on_device: bool = False) -> None:
        """Count a request that also used the model's `preprocess` and `postprocess`."""
        own = self._own
        own[_FIELDS["plain"]] += 1
        own[_FIELDS["preprocess_ns"]] += int(1e9 * preprocess_s)
        own[_FIELDS["postprocess_ns"]] += int(1e9 * postprocess_s)
        own[_FIELDS["on_device"]] += on_device

    def failed(self, status: int) -> None:
        """Count a request that failed, with its HTTP status."""
        self._own[_FIELDS["late" if status == 504 else "refused" if status in (429, 503) else "failed"]] += 1

    def total(self) -> dict[str, int]:
        """The counts of all processes, by name."""
        return {name: sum(row[index] for row in self._rows) for name, index in _FIELDS.items()}

    def durations(self) -> list[int]:
        """Requests in each bucket of durations, of all processes."""
        return [sum(row[index] for row in self._rows) for index in range(_DURATIONS, _ROWS)]

    def batches(self) -> list[int]:
        """Batches in each bucket of rows, of all processes."""
        return [sum(row[index] for row in self._rows) for index in range(_ROWS, self.width)]


class Processes:
    """Number of running processes by role, and of restarts; written by the supervisor alone.

    Args:
        numbers: Memory of `width` numbers; None: those of a server in one process.
    """

    width = 2 * len(ROLES)

    def __init__(self, numbers: Row | None = None) -> None:
        self._numbers = [1, 0, 0, 0] if numbers is None else numbers

    def runs(self, running: Mapping[str, int]) -> None:
        """Say how many processes of each role run."""
        for index, role in enumerate(ROLES):
            self._numbers[index] = running.get(role, 0)

    def restarted(self, role: str) -> None:
        """Count a process that replaces one that died."""
        self._numbers[len(ROLES) + ROLES.index(role)] += 1

    @property
    def running(self) -> dict[str, int]:
        """Number of running processes by role."""
        return {role: self._numbers[index] for index, role in enumerate(ROLES)}

    @property
    def restarts(self) -> dict[str, int]:
        """Processes that were started again, by role."""
        return {role: self._numbers[len(ROLES) + index] for index, role in enumerate(ROLES)}


class Counts:
    """All counts of a server, in shared memory.

    Args:
        models: How many.
        cpu: CPU processes.
        engines: Engine processes.
        memory: Of `size` bytes; None: of this process alone.
        role: Of this process.
        index: Of this process among those of its role.

    Attributes:
        statistics: Of each model.
        processes: Which run.
        signs: Signs of life of the engine processes.
        index: Of this process among those of its role.
    """

    def __init__(
        self,
        models: int,
        cpu: int = 1,
        engines: int = 0,
        memory: memoryview | None = None,
        role: str = ROLES[0],
        index: int = 0,
    ) -> None:
        numbers: Row = [0] * (self.size(models, cpu, engines) // 8) if memory is None else memory.cast("q")
        width = Statistics.width
        own = index + (cpu if role == ROLES[1] else 0)
        self.statistics = [
            Statistics([_part(numbers, (row * models + model) * width, width) for row in range(cpu + engines)], own)
            for model in range(models)
        ]
        at = (cpu + engines) * models * width
        self.processes = Processes(None if memory is None else _part(numbers, at, Processes.width))
        self.signs, self.index = (
            Heartbeats(_part(numbers, at + Processes.width, Heartbeats.width * max(1, engines))),
            index,
        )

    @staticmethod
    def size(models: int, cpu: int, engines: int) -> int:
        """Size of the counts, in bytes."""
        return 8 * ((cpu + engines) * models * Statistics.width + Processes.width + Heartbeats.width * max(1, engines))


def _part(numbers: Row, start: int, count: int) -> Row:
    return numbers[start : start + count]
