"""Time on the GPU, by events around runs that are queued one behind the other, and on the host, by the wall."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDS, SPAN_US = 15, 4000.0
_MOST = 200


@dataclass(frozen=True)
class Times:
    """Microseconds of one run.

    Attributes:
        median: Of all rounds.
        least: Of all rounds.
        ratio: Time over the baseline's in the same round, median; None without a baseline.
    """

    median: float
    least: float
    ratio: float | None


class Clock:
    """Times what is queued on one stream.

    Attributes:
        stream: CuPy's; it waits for no other.
    """

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def gpu(self, queue: Callable[[], object], beside: Callable[[], object] | None = None) -> Times:
        """Time on the GPU.

        Args:
            queue: Queues one run on the stream.
            beside: Likewise, the baseline; runs right before, in every round.
        """
        functions = [queue] if beside is None else [beside, queue]
        counts = [self._enough(function) for function in functions]
        rounds = [[self._span(each, n) for each, n in zip(functions, counts, strict=True)] for _ in range(ROUNDS)]
        return summary([each[-1] for each in rounds], [each[0] for each in rounds] if beside else None)

    def _enough(self, queue: Callable[[], object]) -> int:
        """How many runs fill a span that events measure well; the function has run before, so all is loaded."""
        self._span(queue, 2)
        return max(3, min(_MOST, round(SPAN_US / max(self._span(queue, 3), 1.0))))

    def _span(self, queue: Callable[[], object], count: int) -> float:
        """Microseconds of one of some runs."""
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        with self.stream:
            queue()  # the events' own start lies behind it
            begin.record(self.stream)
            for _ in range(count):
                queue()
            end.record(self.stream)
        end.synchronize()
        return 1e3 * float(self._cupy.cuda.get_elapsed_time(begin, end)) / count


def summary(times: Sequence[float], beside: Sequence[float] | None = None) -> Times:
    """Rounds → figures."""
    ratio = None
    if beside is not None:
        ratio = statistics.median(ours / theirs for ours, theirs in zip(times, beside, strict=True))
    return Times(statistics.median(times), min(times), ratio)


def wall(run: Callable[[], object]) -> float:
    """Seconds of one run, host to host."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
