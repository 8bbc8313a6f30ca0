"""YOLOv2-VOC at 416 x 416, random weights, in every precision and batch."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import pytest

from .clock import Clock, wall
from .cost import cost
from .runners import BASELINE, RUNNERS, SINGLES, Runner, Running
from .subject import BATCHES, TOLERANCE, Subject

pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

CASES = [(runner, batch) for batch in BATCHES for runner in RUNNERS if batch <= runner.most]
CASES += [pytest.param(runner, 1, marks=[pytest.mark.slow] * runner.slow) for runner in SINGLES]
HOST_ROUNDS = 30


@pytest.mark.parametrize(
    ("runner", "batch"),
    CASES,
    ids=lambda each: f"{each}" if isinstance(each, int) else f"{each.name}, {each.precision}, batch",
)
def test_latency(
    runner: Runner,
    batch: int,
    subject: Subject,
    clock: Clock,
    baseline: Callable[[int], Running],
    benchmark,
) -> None:
    beside = baseline(batch)
    running = beside if runner is BASELINE else runner.make(subject, clock, batch)
    try:
        x, wanted = subject.photos[:batch], subject.head[:batch]
        head = running.run(x)
        error = float(np.linalg.norm(head - wanted) / np.linalg.norm(wanted))
        assert error < TOLERANCE[runner.precision], f"{runner.name} computes something else: relative error {error:.2e}"
        same = subject.same_boxes(head)
        assert same or runner.precision != "FP32", f"{runner.name} finds other boxes"
        gpu = clock.gpu(running.queue, beside.queue) if running.queue else None
        times: list[float] = []
        benchmark.pedantic(
            running.run,
            (x,),
            setup=lambda: times.append(wall(lambda: beside.run(x))),
            rounds=HOST_ROUNDS,
            warmup_rounds=2,
        )
        rounds = benchmark.stats.stats.data
        needs = cost(subject.one, batch)
        benchmark.extra_info.update(
            kind="race", runner=runner.name, precision=runner.precision, batch=batch, error=error, same_boxes=same,
            host_ratio=statistics.median(own / other for own, other in zip(rounds, times[-len(rounds) :], strict=True)),
            gpu_us=gpu and gpu.median, gpu_least_us=gpu and gpu.least, gpu_ratio=gpu and gpu.ratio,
            kernels=running.kernels, bytes=running.bytes, operations=needs.operations, moved=needs.bytes(runner.precision),
            **(running.facts or {}),
        )  # fmt: skip
    finally:
        if running is not beside:
            running.close()
