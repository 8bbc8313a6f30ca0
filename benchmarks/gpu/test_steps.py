"""Each optimization of engine `cudnn`: a network with it and without it."""

from __future__ import annotations

import numpy as np
import pytest

from pytrtplugins.engines import BuildOptions
from pytrtplugins.engines.cudnn import CudnnEngine
from pytrtplugins.engines.cudnn.lower import OPTIONAL_STEPS

from .blocks import BLOCKS
from .clock import Clock
from .conftest import Baselines
from .ours import network, ours
from .running import Running
from .subject import TOLERANCE, Subject

YOLO = "YOLOv2"
SHOWN_ON = {
    "dead-layers": ("bottleneck with identities", "fp16"),
    "residuals": ("bottleneck", "fp16"),
    "siblings": ("inception block", "fp16"),
    "int8-moves": (YOLO, "int8"),
    "int8-epilogues": (YOLO, "int8"),
}
"""Where a step has something to do, if not on YOLOv2 in FP16."""
SLOW = ("activations", "int8-epilogues", "own-kernels", "cudnn-kernels")
"""Left out, they give every convolution a new problem, for which kernels have to be chosen."""
SEARCH = 30  # seconds
CASES = [(step, *SHOWN_ON.get(step, (YOLO, "fp16"))) for step in OPTIONAL_STEPS]
CASES += [("streams", "inception block", "fp16"), ("siblings", "inception block, batch 8", "fp16")]
CASES += [("own-kernels", YOLO, "fp32")]
pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

HOST_ROUNDS = 10


@pytest.mark.parametrize(
    ("step", "name", "precision"),
    [pytest.param(*case, marks=[pytest.mark.slow(SEARCH)] * (case[0] in SLOW)) for case in CASES],
)
def test_step(
    step: str, name: str, precision: str, subject: Subject, clock: Clock, baselines: Baselines, benchmark
) -> None:
    x = subject.photos[:1] if name == YOLO else np.random.default_rng(0).random(BLOCKS[name].dims, dtype=np.float32)

    def build(*without: str) -> Running:
        if name == YOLO:
            return ours(precision, without)(subject, clock, 1)
        options = BuildOptions(precision, settings={"without": without, "batch": len(x)})
        engine = CudnnEngine(BLOCKS[name].model(), options)  # as the model is: ptp.build would prepare it
        return network(engine, len(x), clock)

    key = "race 1" if (name, precision) == (YOLO, "fp16") else f"{name} {precision}"
    whole, less = baselines(key, build), build(step)
    try:
        wanted, found = whole.run(x), less.run(x)
        error = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
        assert error < TOLERANCE[precision.upper()], f"without {step} it computes something else: error {error:.2e}"
        times, before = clock.gpu(less.queue, whole.queue), clock.gpu(whole.queue)
        benchmark.pedantic(less.run, (x,), rounds=HOST_ROUNDS, warmup_rounds=1)
        benchmark.extra_info.update(
            kind="step", step=step, network=name, precision=precision.upper(), error=error, ratio=times.ratio,
            gpu_us=before.median, without_us=times.median, kernels=whole.kernels, without_kernels=less.kernels,
            bytes=whole.bytes, without_bytes=less.bytes,
        )  # fmt: skip
    finally:
        less.close()
