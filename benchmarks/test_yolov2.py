"""YOLOv2-VOC at 416 x 416, one image at a time, random weights."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import numpy as np
import pytest

from darknet2caffe import read_network, to_onnx, write_darknet
from tests.oracles.libdarknet import unavailable_reason

from .gpu.clock import wall
from .runners import RUNNERS, Runner, Subject, darknet, onnxruntime, openvino_trunk

CFG = Path("/usr/share/darknet/cfg/yolov2-voc.cfg")
TOLERANCE = {
    "FP32": 1e-4,
    "INT8": 0.15,
}  # of the head, relative L2; INT8 of random weights, so no more than a check that the right network ran


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    cfg = Path(os.environ.get("BENCHMARK_CFG", CFG))
    if not cfg.exists():
        pytest.skip(f"{cfg} is missing (apt-get install darknet, or set BENCHMARK_CFG)")
    network = read_network(cfg).with_random_weights(seed=0)
    folder = tmp_path_factory.mktemp("yolov2")
    write_darknet(network, folder / "yolov2-voc.cfg", folder / "yolov2-voc.weights")
    images = np.random.default_rng(1).random((4, 1, 3, 13, 13), dtype=np.float32)
    smooth = [np.ascontiguousarray(np.kron(image, np.ones((1, 1, 32, 32), np.float32))) for image in images]
    batches = tuple({"data": image} for image in smooth)
    return Subject(folder / "yolov2-voc.cfg", folder / "yolov2-voc.weights", to_onnx(network), smooth[0], batches)


@pytest.fixture(scope="module")
def expected(subject: Subject) -> np.ndarray:
    """The head as darknet computes it; as onnxruntime does where darknet is missing."""
    return (onnxruntime if unavailable_reason() else darknet)(subject)().ravel()


@pytest.fixture(scope="module")
def baseline(subject: Subject):
    return openvino_trunk(subject)


@pytest.mark.parametrize("runner", RUNNERS, ids=lambda runner: f"{runner.name}, {runner.precision}")
def test_latency(runner: Runner, subject: Subject, expected: np.ndarray, baseline, benchmark) -> None:
    if runner.make is darknet and unavailable_reason():
        pytest.skip(unavailable_reason())
    run = runner.make(subject)
    head = np.asarray(run()).ravel()
    error = float(np.linalg.norm(head - expected) / np.linalg.norm(expected)) if runner.raw_head else None
    if error is not None:
        assert error < TOLERANCE[runner.precision], f"{runner.name} computes something else: relative error {error:.2e}"
    beside: list[float] = []
    benchmark.pedantic(run, setup=lambda: beside.append(wall(baseline)), rounds=runner.rounds, warmup_rounds=1)
    benchmark.extra_info.update(
        runner=runner.name, precision=runner.precision, error=error, baseline_ms=1e3 * statistics.median(beside),
    )  # fmt: skip
