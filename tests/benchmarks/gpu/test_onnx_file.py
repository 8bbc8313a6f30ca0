"""An ONNX file's rows without a GPU: engine ``cuda`` computes on NumPy arrays, and what is timed is a stub."""

import argparse
import json

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from benchmarks.gpu import onnx_file
from benchmarks.gpu.clock import Times
from benchmarks.gpu.running import Running
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.base.types import BuildOptions
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.engine import CudaEngine
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.quantized import quantize_for
from pytrtplugins.passes import prepare
from pytrtplugins.plugin.policy import NO_REQUESTS
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import host_execution
from tests.engines.cuda.stand_in import Stream
from tests.mlops.tables.people import network, photos


class OnHost:
    """Engine ``cuda``, lowered and planned, on NumPy arrays: an engine and its context in one."""

    disabled, device = frozenset({"graph"}), HostDevice()
    _kept = None

    def __init__(self, model, precision, calibration, batches):
        first = ptp.build(model, engine="onnxruntime", progress=False)
        self.inputs, self.outputs, self.precision, self.batches = first.inputs, first.outputs, precision, batches
        self._model = prepare(model)
        if precision == "int8":
            options = BuildOptions(precision)
            self._model = quantize_for(CudaEngine, self._model, calibration, options, progress=False).model
        self._type = DType.FLOAT32 if precision == "fp32" else DType.FLOAT16
        self._lowered = lower(self._model, (), NO_REQUESTS, self._type)

    def execution(self, sizes, outside=None):
        (batch,) = sizes.values()
        assert batch in self.batches  # no kernels are chosen for another one
        data = np.zeros((batch, *self.inputs[0].dims[1:]), np.float32)
        return host_execution(self._model, {"data": data}, self._type, outside=outside, lowered=self._lowered)

    def create_context(self):
        return self

    def run(self, inputs, outputs=None):
        execution = self._kept = self._kept or self.execution({"N": len(inputs["data"])})
        execution.input("data")[...] = inputs["data"]
        execution.queue(None)
        return {"embedding": execution.output("embedding").copy()}

    def weight_bytes(self):
        return 1 << 20

    def close(self):
        pass


class Clock:
    stream = Stream()

    def gpu(self, queue, beside=None):
        queue()
        return Times(30.0, 29.0, 1.5, 20.0) if beside else Times(20.0, 19.0)


@pytest.fixture
def given(tmp_path, monkeypatch):
    """The options of a run, and engines and peers that need no GPU."""
    onnx.save(network(), tmp_path / "face.onnx")
    np.savez(tmp_path / "faces.npz", **photos(people=4, each=2))
    real = ptp.build

    def build(model, *, engine, precision="fp32", calibration=None, settings=None, **more):
        if engine != "cuda":
            return real(model, engine=engine, precision=precision, calibration=calibration, **more)
        return OnHost(model, precision, calibration, settings["batch"])

    monkeypatch.setattr(ptp, "build", build)
    monkeypatch.setitem(onnx_file.PEERS, "right", lambda model, x, wanted, clock: Running(lambda x: wanted, print))
    return argparse.Namespace(
        model=tmp_path / "face.onnx", data=tmp_path / "faces.npz", pixels="0..255", calibration=None,
        algorithm="minmax", precisions=["fp16", "int8", "fp32"], batches=[2], peers=["right"], disable=[],
    )  # fmt: skip


def test_every_precision_and_batch_is_a_row_with_accuracy_memory_and_the_times_beside_each_peer(
    given, tmp_path, capsys
):
    record = onnx_file.Record(tmp_path / "rows.json", {"model": "face.onnx"})
    onnx_file.measure(given, Clock(), record)
    rows = {(row["precision"], row["batch"]): row for row in record.rows if row.get("engine") == "cuda"}
    assert list(rows) == [(kind, 2) for kind in ("fp16", "int8", "fp32")]
    assert not [row for row in record.rows if "failure" in row]
    for (kind, _), row in rows.items():
        assert (row["us"], row["weights_mib"]) == (20.0, 1.0)
        assert row["error"] < {"fp32": 1e-5, "fp16": 3e-3, "int8": 0.1}[kind]
        assert row["cosine_mean"] > {"fp32": 1 - 1e-7, "fp16": 0.9999, "int8": 0.99}[kind]
        assert list(row["seconds"]) == ["build", "accuracy", "times"]
    said = capsys.readouterr().err
    assert f"cuda fp16, batch 2: 20.0 µs, cosine {rows['fp16', 2]['cosine_mean']:.5f}, TPR at 0.001 " in said
    assert said.count("right, batch 2: 30.0 µs, engine cuda is 1.50 times as fast, relative error 0.0e+00") == len(rows)
    assert rows["int8", 2]["activations_mib"] < rows["fp32", 2]["activations_mib"]
    assert rows["int8", 2]["cosine_mean"] < rows["fp16", 2]["cosine_mean"]
    raced = [row for row in record.rows if row.get("engine") == "right"]
    assert [(row["beside"], row["batch"]) for row in raced] == [(kind, batch) for kind, batch in rows]
    assert {(row["us"], row["cuda_us"], row["speed"]) for row in raced} == {(30.0, 20.0, 1.5)}
    assert json.loads((tmp_path / "rows.json").read_text()) == {"model": "face.onnx", "rows": record.rows}
    text = onnx_file.summary(record.rows)
    assert text.splitlines()[0].startswith("cuda fp16, batch 2: 20.0 µs, 1.50 times as fast as right; cosine ")


def test_what_fails_or_is_missing_is_told_and_the_next_row_begins(given, monkeypatch):
    given.precisions = ["fp16", "fp32"]
    monkeypatch.setitem(onnx_file.PEERS, "wrong", lambda *given: 1 / 0)
    monkeypatch.setitem(onnx_file.PEERS, "missing", lambda *given: pytest.skip("not installed"))
    given.peers = ["wrong", "missing", "right"]
    real = OnHost.__init__

    def init(self, model, precision, *more):
        if precision == "fp16":
            raise ValueError("no kernel takes it\nfor a long reason")
        real(self, model, precision, *more)

    monkeypatch.setattr(OnHost, "__init__", init)
    record = onnx_file.Record(None, {})
    onnx_file.measure(given, Clock(), record)
    rows = {row["engine"]: row for row in record.rows if row["engine"] != "cuda"}
    half, full = [row for row in record.rows if row["engine"] == "cuda"]
    assert half["failure"] == "ValueError: no kernel takes it"
    assert full["us"] == 20.0
    assert rows["wrong"]["failure"] == "ZeroDivisionError: division by zero"
    assert rows["missing"]["skipped"] == "not installed"
    assert rows["right"]["speed"] == 1.5


def test_a_batch_that_the_model_does_not_take_is_left_out(given):
    model = onnx.load(given.model)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(onnx.shape_inference.infer_shapes(model), given.model)
    given.precisions, given.batches = ["fp16"], [64, 2]
    record = onnx_file.Record(None, {})
    onnx_file.measure(given, Clock(), record)
    large, small = [row for row in record.rows if row["engine"] == "cuda"]
    assert "the model's batch is 2" in large["skipped"]
    assert f"pytrt repair {given.model} --also free-batch" in large["skipped"]
    assert (small["batch"], "accuracy" in small["seconds"]) == (2, True)


def test_outputs_that_are_wrong_are_not_timed(given, monkeypatch):
    given.precisions = ["fp32"]
    real = OnHost.run
    monkeypatch.setattr(OnHost, "run", lambda *given: {"embedding": 1.1 * real(*given)["embedding"]})
    record = onnx_file.Record(None, {})
    onnx_file.measure(given, Clock(), record)
    row = record.rows[-1]
    assert "relative error 1.00e-01" in row["failure"]
    assert "us" not in row


def test_a_run_that_is_ended_leaves_what_it_measured(given, tmp_path, monkeypatch):
    """Also of the row in which it is ended."""

    def ended(*given, **more):
        raise KeyboardInterrupt

    clock = Clock()
    monkeypatch.setitem(onnx_file.PEERS, "right", ended)
    with pytest.raises(KeyboardInterrupt):
        onnx_file.measure(given, clock, onnx_file.Record(tmp_path / "rows.json", {}))
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["engine"] for row in rows if "engine" in row] == ["onnxruntime", "cuda", "right"]
    assert rows[-2]["us"] == 20.0
    assert rows[-2]["cosine_mean"] > 0.999


def test_a_cache_that_was_made_before_is_taken(given, monkeypatch, tmp_path):
    monkeypatch.setattr(onnx_file, "calibrate", None)
    x = np.random.default_rng(0).integers(0, 256, (4, 3, 16, 16)).astype(np.float32)
    calibrator = MinMaxCalibrator([{"data": x}], cache=tmp_path / "made.cache")
    calibrator.store_table(calibrate(given.model, calibrator, engine="onnxruntime", progress=False))
    given.calibration, given.precisions = tmp_path / "made.cache", ["int8"]
    record = onnx_file.Record(None, {})
    onnx_file.measure(given, Clock(), record)
    assert record.rows[1]["cosine_mean"] > 0.95
    assert "failure" not in record.rows[1]
