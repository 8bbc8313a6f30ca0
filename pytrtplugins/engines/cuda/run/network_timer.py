"""Kernels chosen by the time of the whole network.

Alone, a kernel is timed behind itself: how it begins while another one ends, on which multiprocessors it leaves room, and what is in the
cache is another matter in a network. So those that were hardly slower alone are tried in its place, one convolution after the other.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ....errors import PytrtpluginsError
from ....utils.files import sha256_hex
from ....utils.progress import progress_bar
from ..conv.cache import Choice
from ..conv.selector import ConvSelector
from ..conv.timer import pseudo_random_values
from ..device.device import CudaDevice
from ..plan.plan import Plan, Step
from .execution import Execution

__all__ = ["NetworkClock", "choose_in_network", "plan_digest"]

_GAIN = 0.998
"""How much of the network's time has to be left for a change: less is noise."""
_SECONDS = 20.0
_SPANS, _SPAN_US = 5, 2000.0


class NetworkClock:
    """Times a network on a GPU.

    Args:
        device: The GPU.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._cuda, self._xp = device.xp.cuda, device.xp
        self._stream, self._indices = self._cuda.Stream(non_blocking=True), list[Any]()

    def prepare(self, execution: Execution) -> None:
        """Give the inputs values: floats without order, else zeros, which are valid indices."""
        arrays = [execution.input(name) for name in execution.plan.inputs]
        self._indices = [array for array in arrays if array.dtype.kind != "f"]
        for array in arrays:
            array[...] = pseudo_random_values(self._xp, array.shape) if array.dtype.kind == "f" else 0
        self._xp.cuda.runtime.deviceSynchronize()

    def __call__(self, execution: Execution) -> float:
        """Microseconds of one run, one graph behind the other."""
        execution.capture(self._stream)
        (once,) = self._spans(execution, 1, 1)
        return statistics.median(self._spans(execution, max(2, math.ceil(_SPAN_US / once)), _SPANS))

    def _spans(self, execution: Execution, runs: int, spans: int) -> list[float]:
        events = [self._cuda.Event() for _ in range(spans + 1)]
        self._queue(execution)  # the host queues a network faster than the GPU runs it, and nothing compiles any more
        events[0].record(self._stream)
        for event in events[1:]:
            for _ in range(runs):
                self._queue(execution)
            event.record(self._stream)
        self._stream.synchronize()
        pairs = itertools.pairwise(events)
        return [1e3 * float(self._cuda.get_elapsed_time(begin, end)) / runs for begin, end in pairs]

    def _queue(self, execution: Execution) -> None:
        with self._stream:
            for array in self._indices:  # other tensors have lain there since
                array.fill(0)
        execution.queue(self._stream)


def choose_in_network(
    plan: Plan,
    selector: ConvSelector,
    make: Callable[[ConvSelector], Execution],
    measure: Callable[[Execution], float],
    progress: bool = False,
) -> None:
    """Put kernels with which the network is faster in the place of those that were the fastest alone, and remember that.

    Args:
        plan: The network; nothing is done if it is not a single CUDA graph.
        selector: Where kernels were chosen alone.
        make: Makes buffers and launches, by the kernels of a selector.
        measure: Microseconds of one run.
        progress: Show a progress bar, if the output is a terminal.
    """
    steps = [step for step in plan.steps if step.kind == "conv"]
    keys = _by_time(steps, plan, selector)
    rivals = sum(len(selector.choices[key].runners_up) for key in keys)
    if not all(step.capturable for step in plan.steps) or not rivals:
        return
    network = plan_digest(plan, selector)
    if selector.cache is not None:
        known = {key: selector.cache.get(f"{network} {key}") for key in keys}
        if all(known.values()):
            selector.choices.update({key: choice for key, choice in known.items() if choice is not None})
            return
    tried = selector.rehearsal()
    execution = make(tried)
    with progress_bar("timing the network", rivals, progress) as advance:
        _search(execution, tried, keys, measure, advance)
    execution.close()
    found = {key: replace(tried.choices[key], runners_up=()) for key in keys}
    selector.choices.update(found)
    if selector.cache is not None:
        selector.cache.put({f"{network} {key}": choice for key, choice in found.items()})


def _search(
    execution: Execution,
    selector: ConvSelector,
    keys: Sequence[str],
    measure: Callable[[Execution], float],
    advance: Callable[[int, str], None],
) -> None:
    best, begun = measure(execution), time.monotonic()
    for key in keys:
        for provider, tactic, alone in selector.choices[key].runners_up:
            advance(1, f"{best:.1f} µs")
            if time.monotonic() - begun > _SECONDS:
                return
            kept = selector.choices[key]
            selector.choices[key] = Choice(provider, tactic, alone, kept.rivals)
            undo: Callable[[], None] | None = None
            try:
                undo = execution.remake(lambda step: _uses(step, execution.plan, selector, key))  # noqa: B023 - called at once
                took = max(measure(execution) for _ in range(2)) if measure(execution) < _GAIN * best else math.inf
            except (RuntimeError, PytrtpluginsError):  # what worked alone may still lack memory here
                took = math.inf
            if took < _GAIN * best:
                best = took
                continue
            selector.choices[key] = kept
            if undo is not None:
                undo()


def _by_time(steps: Sequence[Step], plan: Plan, selector: ConvSelector) -> list[str]:
    """The convolutions that differ, those first on which the network spends the most."""
    times: Counter[str] = Counter()
    for step in steps:
        for problem, choice in selector.chosen(selector.problem(step, plan)):
            times[problem.key] += choice.microseconds  # type: ignore[assignment]  # of Counter, which wants whole numbers
    return [key for key, _ in times.most_common()]


def _uses(step: Step, plan: Plan, selector: ConvSelector, key: str) -> bool:
    if step.kind != "conv":
        return False
    return any(problem.key == key for problem, _ in selector.chosen(selector.problem(step, plan)))


def plan_digest(plan: Plan, selector: ConvSelector) -> str:
    """A digest of the plan's steps and kernels in order."""
    lines = [
        f"{step.kind} {selector.problem(step, plan).key if step.kind == 'conv' else step.op} {stream} "
        f"{[plan.tensors[name].format for name in step.outputs if name in plan.tensors]}"
        for step, stream in zip(plan.steps, plan.schedule.streams, strict=True)
    ]
    return sha256_hex("\n".join(lines).encode())[:16]
