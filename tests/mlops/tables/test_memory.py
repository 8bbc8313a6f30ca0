"""Memory of an engine, measured in a process of its own."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import numpy_helper

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.mlops.tables import memory
from pytrtplugins.mlops.tables.memory import measure_memory
from tests.onnx_parts import info, model, node

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def test_the_weights_of_an_engine_are_in_its_memory_and_the_library_is_not(tmp_path):
    weights = np.ones((2048, 2048), np.float32)  # 16 MiB
    product = model(
        node("MatMul", "x w", "y"), weights=[numpy_helper.from_array(weights, "w")], inputs=[info("x", ["N", 2048])]
    )
    engine = ptp.build(product, engine="onnxruntime", progress=False)
    engine.save(tmp_path / "a.engine")
    found = measure_memory(tmp_path / "a.engine", 2)
    assert 15 < found.host < 250  # the file, its copies, and what the library packs
    assert found.gpu == 0
    assert found.weights == 16
    assert found.activations is not None


def test_on_a_gpu_what_becomes_less_free_is_the_engines(tmp_path, monkeypatch):
    """With a library in CuPy's place; memGetInfo tells what is free, and all there is."""
    path = tmp_path / "a.engine"
    ptp.build(scaled(1), engine="reference", progress=False).save(path)
    free = iter([(50 << 20, 80 << 20), (43 << 20, 80 << 20)])
    cupy = SimpleNamespace(
        zeros=lambda size: None, cuda=SimpleNamespace(runtime=SimpleNamespace(memGetInfo=lambda: next(free)))
    )
    context = SimpleNamespace(run=lambda inputs: {}, activation_bytes=lambda: 3 << 20)
    engine = SimpleNamespace(inputs=(), create_context=lambda: nullcontext(context), weight_bytes=lambda: 2 << 20)
    monkeypatch.setattr(memory, "_ON_GPU", ("reference",))
    monkeypatch.setattr(memory, "require", lambda name, **options: cupy)
    monkeypatch.setattr(memory, "load_engine", lambda path: engine)
    found = memory._main({"modules": [], "path": path, "batch": 1})
    assert (found["gpu"], found["weights"], found["activations"]) == (7, 2, 3)


@pytest.mark.parametrize(
    ("loading", "running", "host", "activations"), [(25, 40, 30, 28), (45, 40, 35, 28), (9, 8, 0, 0)]
)
def test_the_peaks_of_loading_and_running_are_counted_from_what_there_was(
    tmp_path, monkeypatch, loading, running, host, activations
):
    """Before loading 10 MiB are in use, before running 12."""
    ptp.build(scaled(1), engine="reference", progress=False).save(tmp_path / "a.engine")
    in_use, peaks = iter([10 << 20, 12 << 20]), iter([loading << 20, running << 20])
    monkeypatch.setattr(memory, "_reset_peak", lambda: next(in_use))
    monkeypatch.setattr(memory, "_bytes", lambda key: next(peaks))
    found = memory._main({"modules": [], "path": tmp_path / "a.engine", "batch": 1})
    assert (found["host"], found["activations"]) == (host, activations)


def scaled(rows):
    """A network whose only constant has 6 MiB, and whose output has 6 for each row."""
    return model(
        node("Mul", "x w", "scaled"),
        node("Sin", "scaled", "y"),
        weights=[numpy_helper.from_array(np.ones((512, 64, 48), np.float32), "w")],
        inputs=[info("x", [rows, 512, 64, 48])],
    )


@pytest.mark.parametrize(
    "engine", ["cpu", *(pytest.param(name, marks=pytest.mark.slow) for name in ("onnxruntime", "reference"))]
)
def test_activations_are_apart_from_weights(tmp_path, engine):
    path = tmp_path / "a.engine"
    ptp.build(scaled("N"), engine=engine, progress=False).save(path)
    found = measure_memory(path, 4)
    assert (
        found.weights in {"cpu": (0, 6), "onnxruntime": (6,), "reference": (None,)}[engine]
    )  # OpenVINO hides what it fuses
    assert 0.9 * 24 < found.activations <= found.host  # libraries may keep what is between


def test_int8_weights_count_a_byte_each():
    weights = [np.random.default_rng(seed).standard_normal((64, 64, 3, 3)).astype(np.float32) for seed in range(3)]
    network = model(
        *(node("Conv", f"x{place} w{place}", f"x{place + 1}") for place in range(3)),
        weights=[numpy_helper.from_array(array, f"w{place}") for place, array in enumerate(weights)],
        inputs=[info("x0", [1, 64, 8, 8])],
        outputs=["x3"],
    )
    calibrator = MinMaxCalibrator([{"x0": np.random.default_rng(0).standard_normal((1, 64, 8, 8)).astype(np.float32)}])
    whole = sum(array.size for array in weights)
    for engine in ("cpu", "onnxruntime"):
        assert ptp.build(network, engine=engine, progress=False).weight_bytes() == 4 * whole
    codes = ptp.build(
        network,
        engine="onnxruntime",
        precision="int8",
        calibration=calibrator,
        settings={"int8": "always"},
        progress=False,
    )
    assert codes.weight_bytes() == pytest.approx((1 + 1 + 4) * whole / 3, rel=0.02)  # the last layer stays float
