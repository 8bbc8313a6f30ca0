"""The stage clock: how long each stage of the input pipeline works, and how long steps wait for data."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

__all__ = ["Clock", "Lap", "Span", "Stage"]

MOST_SPANS = 200_000  # kept for a trace


class Span(NamedTuple):
    """A piece of work of one thread, in seconds since the clock started."""

    stage: str
    thread: str
    begin: float
    end: float
    items: int


@dataclass
class Stage:
    """The work of a stage in a lap: seconds of all its workers together, and finished photos or batches."""

    name: str
    workers: int
    busy: float = 0.0
    items: int = 0


@dataclass(frozen=True)
class Lap:
    """The figures of one interval.

    Fields:
        end: Its end, in seconds since the clock was made.
        seconds: How long it was.
        steps: How often a batch was asked for.
        waited: Seconds that the device (on a CPU: the caller) had nothing to do but to wait for those batches.
        stages: In the order in which they were declared.
    """

    end: float
    seconds: float
    steps: int
    waited: float
    stages: tuple[Stage, ...]

    @property
    def step_time(self) -> float:
        """Seconds a step."""
        return self.seconds / max(1, self.steps)

    @property
    def data_time(self) -> float:
        """Seconds a step that were spent on waiting for data."""
        return self.waited / max(1, self.steps)

    @property
    def share(self) -> float:
        """Share of the time that was spent on waiting for data."""
        return self.waited / self.seconds if self.seconds else 0.0

    def occupancy(self, stage: str) -> float:
        """Share of the time in which a stage's workers worked; 0 for an unknown stage."""
        stage_times = next((s for s in self.stages if s.name == stage), None)
        return stage_times.busy / (stage_times.workers * self.seconds) if stage_times and self.seconds else 0.0

    def __str__(self) -> str:
        stages = "".join(f", {s.name} {self.occupancy(s.name):.0%}" for s in self.stages)
        return f"{self.step_time * 1e3:.1f} ms a step, data_time {self.data_time * 1e3:.2f} ms ({self.share:.1%}); busy: {stages[2:]}"


class Clock:
    """Counts the work of stages, from any thread, and the waiting of steps.

    On a GPU a wait is measured there: an event is recorded when a batch is asked for, behind all work that is queued, and one when
    its data have come. The time between them is what the GPU stood still, however far the caller is ahead of it. Nothing is
    synchronized; the events are read later.

    Args:
        trace: Keep each piece of work, up to `MOST_SPANS`, for a trace.
    """

    def __init__(self, *, trace: bool = False) -> None:
        self.laps: list[Lap] = []
        self.spans: list[Span] = []
        self.dropped = 0  # pieces of work that the trace lacks
        self._trace, self._lock = trace, threading.Lock()
        self.zero = time.perf_counter()  # when it was made
        self._stages: dict[str, Stage] = {}
        self._steps, self._waited, self._begin = 0, 0.0, 0.0
        self._events: deque[tuple[Any, Any]] = deque()

    def now(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.zero

    def declare(self, stage: str, workers: int = 1) -> None:
        """Say how many workers a stage has; stages are shown in this order."""
        with self._lock:
            self._stages.setdefault(stage, Stage(stage, workers)).workers = workers

    def add(self, stage: str, begin: float, end: float, items: int = 1, thread: str = "") -> None:
        """Count a piece of work, from :meth:`now` to :meth:`now`."""
        with self._lock:
            counted = self._stages.setdefault(stage, Stage(stage, 1))
            counted.busy += end - begin
            counted.items += items
            if self._trace and len(self.spans) < MOST_SPANS:
                self.spans.append(Span(stage, thread or threading.current_thread().name, begin, end, items))
            elif self._trace:
                self.dropped += 1

    @contextmanager
    def stage(self, name: str, items: int = 1) -> Iterator[None]:
        """Count the body as a stage's work."""
        begin = self.now()
        try:
            yield
        finally:
            self.add(name, begin, self.now(), items)

    @contextmanager
    def waiting(self, device: torch.device) -> Iterator[None]:
        """Count the block as waiting for a step's data, and order the data before later work of the current stream."""
        begin, pair = self.now(), None
        if device.type == "cuda":
            pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            pair[0].record(torch.cuda.current_stream(device))
        try:
            yield
        finally:
            end = self.now()
            if pair is None:
                self._waited += end - begin
            else:
                pair[1].record(torch.cuda.current_stream(device))
                self._events.append(pair)
                self._read_events()
            self._steps += 1
            self.add("data_time", begin, end)

    def _read_events(self) -> None:
        while self._events and self._events[0][1].query():
            first, second = self._events.popleft()
            self._waited += first.elapsed_time(second) / 1e3

    def lap(self) -> Lap:
        """The figures since the last lap, also stored in ``laps``. Call it in the thread that takes the batches."""
        self._read_events()
        with self._lock:
            end, stages = self.now(), tuple(stage for stage in self._stages.values() if stage.name != "data_time")
            lap = Lap(end, end - self._begin, self._steps, self._waited, stages)
            self._begin, self._steps, self._waited = end, 0, 0.0
            self._stages = {name: Stage(name, stage.workers) for name, stage in self._stages.items()}
        self.laps.append(lap)
        return lap
