"""Time on the GPU, by events around runs that are queued one behind the other, and on the host, by the wall."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDS, SPAN_US, REST_S = 15, 4000.0, 0.03
SUSTAINED_US = 1e6
CALLS, TURNS = 10, 6
_MAX_CALLS = 200


@dataclass(frozen=True)
class Times:
    """Microseconds of one run.

    Attributes:
        median: Of all rounds.
        least: Of all rounds.
        ratio: Time over the baseline's in the same round, median; None without a baseline.
        beside: The baseline's own median.
    """

    median: float
    least: float
    ratio: float | None = None
    beside: float | None = None


class Clock:
    """Times what is queued on one stream.

    Attributes:
        stream: CuPy's; it waits for no other.
    """

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def gpu(
        self, queue: Callable[[], object], beside: Callable[[], object] | None = None, delay_us: float = 0.0
    ) -> Times:
        """Time on the GPU; it rests before each round, for work without end can run into the limit of its power.

        Args:
            queue: Queues one run on the stream.
            beside: Likewise, the baseline; runs right before, in every round.
            delay_us: How long the GPU waits before a round's first run, so that the runs behind it are queued by then, and short
                runs are not timed by how fast the host queues them.
        """
        functions = [queue] if beside is None else [beside, queue]
        counts = [self._enough(function) for function in functions]
        rounds = []
        for _ in range(ROUNDS):
            time.sleep(REST_S)
            rounds.append([self._span(each, n, delay_us) for each, n in zip(functions, counts, strict=True)])
        return summary([each[-1] for each in rounds], [each[0] for each in rounds] if beside else None)

    def sustained(self, queue: Callable[[], object]) -> float:
        """Microseconds of one of about a second's runs without a rest."""
        return self._span(queue, round(SUSTAINED_US / self._span(queue, 3)))

    def copy(self, to: int, source: int, size: int) -> None:
        """Queue a copy between addresses, of the host's pinned memory or the GPU's, on the stream."""
        runtime = self._cupy.cuda.runtime
        runtime.memcpyAsync(to, source, size, runtime.memcpyDefault, self.stream.ptr)

    @functools.cached_property
    def _wait(self) -> Any:
        """A kernel that keeps the GPU busy for so many nanoseconds."""
        return self._cupy.RawKernel(_WAIT, "wait")

    def _enough(self, queue: Callable[[], object]) -> int:
        """How many runs fill a span that events measure well; the function has run before, so all is loaded."""
        self._span(queue, 2)
        return max(3, min(_MAX_CALLS, round(SPAN_US / max(self._span(queue, 3), 1.0))))

    def _span(self, queue: Callable[[], object], count: int, delay_us: float = 0.0) -> float:
        """Microseconds of one of some runs."""
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        with self.stream:
            if delay_us:
                self._wait((1,), (1,), (int(1e3 * delay_us),), stream=self.stream)
            queue()  # the events' own start lies behind it
            begin.record(self.stream)
            for _ in range(count):
                queue()
            end.record(self.stream)
        end.synchronize()
        return 1e3 * float(self._cupy.cuda.get_elapsed_time(begin, end)) / count


_WAIT = r"""
extern "C" __global__ void wait(long long nanoseconds) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}
"""


def summary(times: Sequence[float], beside: Sequence[float] | None = None) -> Times:
    """Rounds → figures."""
    if beside is None:
        return Times(statistics.median(times), min(times))
    ratio = statistics.median(ours / theirs for ours, theirs in zip(times, beside, strict=True))
    return Times(statistics.median(times), min(times), ratio, statistics.median(beside))


def wall(run: Callable[[], object]) -> float:
    """Seconds of one run, host to host."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def in_turns(benchmark: Any, run: Callable[[], object], peers: Mapping[str, Callable[[], object]]) -> dict[str, Times]:
    """Time a call from the host to the host beside others: a block of calls of each, then one of its own, again and again.

    So each call but a block's first finds caches, clocks and threads as a loop of such calls leaves them.

    Args:
        benchmark: Of pytest-benchmark; it gets the call's own times.
        run: The call.
        peers: Others, by name.

    Returns:
        For each peer its own times; their ratio is a block's median over that of the call's block behind it.
    """
    blocks: dict[str, list[list[float]]] = {name: [] for name in peers}
    rounds = 0

    def begin_round() -> None:
        nonlocal rounds
        if rounds % CALLS == 0:
            for name, peer in peers.items():
                blocks[name].append([1e6 * wall(peer) for _ in range(CALLS)])
        rounds += 1

    benchmark.pedantic(run, setup=begin_round, rounds=CALLS * TURNS, warmup_rounds=CALLS)
    own = [1e6 * seconds for seconds in benchmark.stats.stats.data]
    medians = [statistics.median(own[first : first + CALLS]) for first in range(0, len(own), CALLS)]
    return {name: _beside(theirs[-TURNS:], medians) for name, theirs in blocks.items()}


def _beside(blocks: Sequence[Sequence[float]], own: Sequence[float]) -> Times:
    ratios = [statistics.median(block) / median for block, median in zip(blocks, own, strict=True)]
    calls = [time for block in blocks for time in block]
    return Times(statistics.median(calls), min(calls), statistics.median(ratios))
