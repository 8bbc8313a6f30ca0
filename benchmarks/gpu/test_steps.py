"""Each optimization of engine `cuda`: a network with it and without it."""

from __future__ import annotations

import numpy as np
import pytest

from pytrtplugins.engines import BuildOptions
from pytrtplugins.engines.cuda import CudaEngine
from pytrtplugins.engines.cuda.lower.pipeline import OPTIONAL_STEPS

from .blocks import BLOCKS
from .clock import Clock
from .conftest import Baselines
from .ours import network, ours
from .running import STEPS, Running
from .subject import TOLERANCE, Subject

YOLO, TRUNK = "YOLOv2", "layers 8 to 11"
SHOWN_ON = {
    "attention": ("attention", "fp16"),
    "dead-layers": ("bottleneck with identities", "fp16"),
    "residuals": ("bottleneck", "fp16"),
    "horizontal-fusion": ("inception block", "fp16"),
    "int8-moves": (YOLO, "int8"),
    "activations": (TRUNK, "fp16"),
    "int8-epilogues": (TRUNK, "int8"),
    "squeeze-excite": ("squeeze-excite block", "fp16"),
    "handwritten-kernels": (TRUNK, "fp16"),
    "cublaslt-kernels": ("bottleneck", "fp16"),
}
"""Where a step has something to do, or kernels for each convolution without it are soon chosen, if not on YOLOv2 in FP16."""
CASES = [(step, *SHOWN_ON.get(step, (YOLO, "fp16"))) for step in OPTIONAL_STEPS]
CASES += [("schedule", "inception block", "fp16"), ("horizontal-fusion", "inception block, batch 8", "fp16")]
CASES += [("handwritten-kernels", YOLO, "fp32")]
pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

HOST_ROUNDS = 10


@pytest.mark.stage(STEPS)
@pytest.mark.parametrize(("step", "name", "precision"), CASES)
def test_step(
    step: str, name: str, precision: str, subject: Subject, clock: Clock, baselines: Baselines, benchmark
) -> None:
    x = subject.images[:1] if name == YOLO else BLOCKS[name].input

    def build(*disable: str) -> Running:
        if name == YOLO:
            return ours(precision, disable)(subject, clock, 1)
        options = BuildOptions(precision, settings={"disable": disable, "batch": len(x)})
        model = BLOCKS[name].quantized() if precision == "int8" else BLOCKS[name].model()
        engine = CudaEngine(model, options)  # as the model is: ptp.build would prepare it
        return network(engine, len(x), clock)

    key = "race 1" if (name, precision) == (YOLO, "fp16") else f"{name} {precision}"
    whole, less = baselines(key, build), build(step)
    try:
        wanted, found = whole.run(x), less.run(x)
        error = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
        assert error < TOLERANCE[precision.upper()], f"without {step} it computes something else: error {error:.2e}"
        assert less.queue is not None
        times = clock.gpu(less.queue, whole.queue)
        benchmark.pedantic(less.run, (x,), rounds=HOST_ROUNDS, warmup_rounds=1)
        benchmark.extra_info.update(
            kind="step", step=step, network=name, precision=precision.upper(), error=error, ratio=times.ratio,
            gpu_us=times.beside, without_us=times.median, kernels=whole.kernels, without_kernels=less.kernels,
            bytes=whole.bytes, without_bytes=less.bytes,
        )  # fmt: skip
    finally:
        less.close()
