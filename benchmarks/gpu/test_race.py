"""YOLOv2-VOC at 416 x 416, random weights, in every precision and batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from .clock import Clock, in_turns
from .cost import cost
from .runners import BASELINE, RUNNERS, SINGLES
from .running import MORE, Runner, Running
from .subject import BATCHES, TOLERANCE, Subject

pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

CASES = [(runner, batch) for batch in BATCHES for runner in RUNNERS if batch <= runner.max_batch]
CASES += [(runner, 1) for runner in SINGLES]


def stage(runner: Runner, batch: int) -> int:
    return MORE if runner.pinned and batch > 1 else runner.stage


@pytest.mark.parametrize(
    ("runner", "batch"),
    [pytest.param(*case, marks=pytest.mark.stage(stage(*case))) for case in CASES],
    ids=lambda each: f"{each}" if isinstance(each, int) else f"{each}, batch",
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
        x, wanted = subject.images[:batch], subject.head[:batch]
        placed = running.place(x)
        head = running.run(placed)
        error = float(np.linalg.norm(head - wanted) / np.linalg.norm(wanted))
        assert error < TOLERANCE[runner.precision], f"{runner.name} computes something else: relative error {error:.2e}"
        same = subject.same_boxes(head)
        assert same or runner.precision != "FP32", f"{runner.name} finds other boxes"
        gpu = clock.gpu(running.queue, beside.queue) if running.queue else None
        sustained = clock.sustained(running.queue) if running.queue and batch > 1 else None
        times = in_turns(benchmark, lambda: running.run(placed), {"ours": lambda: beside.run(x)})
        assert times["ours"].ratio is not None
        needs = cost(subject.one, batch)
        benchmark.extra_info.update(
            kind="race", runner=runner.name, precision=runner.precision, batch=batch, pinned=runner.pinned,
            error=error, same_boxes=same, host_ratio=1 / times["ours"].ratio,
            gpu_us=gpu and gpu.median, gpu_least_us=gpu and gpu.least, gpu_ratio=gpu and gpu.ratio, sustained_us=sustained,
            kernels=running.kernels, bytes=running.bytes, operations=needs.operations, moved=needs.bytes(runner.precision),
            **(running.facts or {}),
        )  # fmt: skip
    finally:
        if running is not beside:
            running.close()
