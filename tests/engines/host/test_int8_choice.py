"""INT8 is hardly slower than float32: both are timed when an engine is built. The clock is a stub here."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines.base.context import ExecutionContext
from pytrtplugins.engines.base.engine_file import read_engine_file
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.engines.host import host_engine, timing
from pytrtplugins.engines.host.host_engine import HostEngine
from pytrtplugins.errors import ExecutionError, UsageError
from pytrtplugins.passes import Precisions, layer_names, prepare, quantize
from pytrtplugins.tensor import AnyDims, TensorDesc
from tests.engines.networks import conv_net, image, run
from tests.user_plugins import Copy

ENGINES = ("cpu", "onnxruntime")


@pytest.fixture(autouse=True)
def inputs_to_time(monkeypatch):
    """As elsewhere than in tests: tests/conftest.py takes them away."""
    monkeypatch.setattr(host_engine, "sample_inputs", timing.sample_inputs)


@pytest.fixture
def clock(monkeypatch):
    """Sets what a run takes in either form, in seconds; the forms are run once, as when they are timed."""

    def set_times(int8: float, float32: float) -> None:
        def seconds(runs):
            assert all(len(run()) == 1 for run in runs.values())
            return {"int8": int8, "float32": float32}

        monkeypatch.setattr(host_engine, "run_seconds", seconds)

    return set_times


@pytest.fixture
def no_clock(monkeypatch):
    def seconds(runs):
        raise AssertionError("nothing is to be timed")

    monkeypatch.setattr(host_engine, "run_seconds", seconds)


def build(name: str, *middle: ptp.Plugin, **options):
    return ptp.build(
        conv_net(*middle), engine=name, precision="int8", calibration=MinMaxCalibrator([{"data": image()}]), **options
    )


def has_int8(engine) -> bool:
    return any(node.op_type == "DequantizeLinear" for node in engine.model.graph.node)


def results(engine):
    return run(engine, {"data": image(seed=5)})["y"]


@pytest.mark.parametrize("name", ENGINES)
def test_slower_int8_falls_back_to_float32_and_says_so(name, clock, caplog, tmp_path):
    clock(int8=0.004, float32=0.003)
    with caplog.at_level(logging.WARNING):
        engine = build(name)
    assert not has_int8(engine)
    assert engine.precision == "int8"
    assert engine.choices["int8"] == "float32: INT8 takes 4 ms, float32 3 ms"
    assert "falls back from INT8 to float32" in caplog.text
    assert "pytrt build --setting int8=always" in caplog.text
    assert (engine.arithmetic.precision, engine.fallback) == ("fp32", "INT8 takes 4 ms, float32 3 ms")
    np.testing.assert_array_equal(results(engine), results(ptp.build(conv_net(), engine=name)))
    engine.save(tmp_path / "net.engine")
    loaded = ptp.load_engine(tmp_path / "net.engine")
    assert loaded.choices["int8"].startswith("float32: ")
    assert (loaded.precision, loaded.arithmetic.precision) == ("int8", "fp32")
    assert read_engine_file(tmp_path / "net.engine").metadata["computes"] == "fp32"
    np.testing.assert_array_equal(results(loaded), results(engine))


@pytest.mark.parametrize("name", ENGINES)
def test_faster_int8_is_kept_with_both_times(name, clock, caplog):
    clock(int8=0.00123, float32=0.0045)
    with caplog.at_level(logging.INFO):
        engine = build(name)
    assert has_int8(engine)
    assert engine.choices == {"int8": "int8: INT8 takes 1.23 ms, float32 4.5 ms"}
    assert "computes in INT8" in caplog.text


@pytest.mark.parametrize(("float32", "kept"), [(1.0, True), (0.95, True), (0.9, True), (0.89, False)])
def test_times_that_are_about_equal_keep_int8(clock, float32, kept):
    clock(int8=1.0, float32=float32)
    assert has_int8(build("cpu")) == kept


@pytest.mark.usefixtures("no_clock")
@pytest.mark.parametrize("name", ENGINES)
def test_always_keeps_int8_without_timing(name, tmp_path):
    engine = build(name, settings={"int8": "always"})
    assert has_int8(engine)
    assert engine.choices == {}
    engine.save(tmp_path / "net.engine")
    assert ptp.load_engine(tmp_path / "net.engine").options.settings == {"int8": "always"}


def test_another_value_of_the_setting_is_refused():
    with pytest.raises(UsageError, match=r"setting int8: expected 'measured' or 'always', found 'never'") as error:
        build("cpu", settings={"int8": "never"})
    assert error.value.setting == "int8"


@pytest.mark.usefixtures("no_clock")
def test_what_was_quantized_elsewhere_and_a_precision_file_are_taken_at_their_word():
    model = prepare(conv_net())
    calibrator = MinMaxCalibrator([{"data": image()}])
    table = ptp.engines.calibrate(model, calibrator, progress=False)
    assert has_int8(ptp.build(quantize(model, table, weight_levels=64), engine="cpu", precision="int8"))
    precisions = Precisions("int8", network_digest(model), layer_names(model), scales=dict(table.items()))
    assert has_int8(ptp.build(conv_net(), engine="cpu", precision=precisions))


@ptp.plugin(namespace="int8_choice_test")
class Picky(Copy):
    def compute(self, x):
        if self.refuses:
            raise ValueError("not such an input")
        return x

    refuses: ClassVar[bool] = False


def test_a_network_that_cannot_run_on_made_up_inputs_is_built_in_int8(monkeypatch):
    monkeypatch.setattr(host_engine, "run_seconds", timing.run_seconds)
    model, calibrator = conv_net(Picky()), MinMaxCalibrator([{"data": image()}])
    table = ptp.engines.calibrate(model, calibrator, progress=False)
    monkeypatch.setattr(Picky, "refuses", True)
    engine = ptp.build(model, engine="cpu", precision="int8", calibration=table)
    assert has_int8(engine)
    assert engine.choices["int8"] == "int8, not timed: a run on made-up inputs failed: not such an input"


@pytest.mark.parametrize("name", ENGINES)
def test_a_network_that_cannot_run_in_int8_alone_is_built_in_float32(name, monkeypatch, caplog):
    def run(context, inputs, _run=ExecutionContext.run):
        if has_int8(context.engine):
            raise ExecutionError("no kernel here")
        return _run(context, inputs)

    monkeypatch.setattr(host_engine, "run_seconds", timing.run_seconds)
    monkeypatch.setattr(ExecutionContext, "run", run)
    with caplog.at_level(logging.WARNING):
        engine = build(name)
    assert not has_int8(engine)
    assert engine.choices["int8"] == "float32: a run in INT8 failed: no kernel here"
    assert "falls back from INT8 to float32: a run in INT8 failed: no kernel here" in caplog.text
    assert np.isfinite(results(engine)).all()


def with_free_height():
    """A model whose height is free, which says nothing of its output's dims."""
    model = conv_net()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    return model


def test_a_free_batch_is_one_and_other_free_dims_are_not_timed():
    inputs = timing.sample_inputs(ptp.build(conv_net(batch="N"), engine="cpu"))
    assert inputs is not None
    assert inputs["data"].shape == (1, *image().shape[1:])
    assert 0 <= inputs["data"].min() < inputs["data"].max() < 1
    assert timing.sample_inputs(ptp.build(with_free_height(), engine="cpu")) is None
    descs = [TensorDesc("x", (2,)), TensorDesc("y", AnyDims())]
    assert timing.sample_inputs(SimpleNamespace(inputs=descs)) is None
    assert timing.sample_inputs(SimpleNamespace(inputs=descs[:1])).keys() == {"x"}


@pytest.mark.usefixtures("no_clock")
@pytest.mark.parametrize("name", ENGINES)
def test_with_free_dims_besides_the_batch_no_float_form_is_built(name, monkeypatch):
    model, calibrator = with_free_height(), MinMaxCalibrator([{"data": image()}])
    table = ptp.engines.calibrate(model, calibrator, progress=False)
    builds: list[Any] = []
    monkeypatch.setattr(HostEngine, "build", classmethod(_counting(HostEngine.build.__func__, builds)))
    engine = ptp.build(model, engine=name, precision="int8", calibration=table)
    assert has_int8(engine)
    assert engine.choices["int8"] == "int8, not timed: dims of its inputs are free"
    assert len(builds) == 1


def _counting(build_engine, builds):
    def build_(cls, *arguments, **options):
        builds.append(cls)
        return build_engine(cls, *arguments, **options)

    return build_


@pytest.mark.usefixtures("no_clock")
def test_a_network_in_which_nothing_is_quantized_says_so():
    model = conv_net()
    del model.graph.node[1:]
    model.graph.output[0].name = model.graph.node[0].output[0]
    engine = ptp.build(model, engine="cpu", precision="int8", calibration=MinMaxCalibrator([{"data": image()}]))
    assert not has_int8(engine)
    assert engine.choices == {"int8": "float32: the model was built without INT8 layers"}


class Clock:
    """time.perf_counter of a machine on which runs take what the list says, one after the other."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def run(self, seconds):
        left = iter(seconds)

        def run() -> None:
            self.now += next(left)

        return run


def test_the_time_of_a_form_is_its_lowest_median(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", clock)
    # once; then in each of three rounds a run that is not counted and says how many follow: 0.2 s hold three of 1/16 s
    slow = [9, 0.0625, 0.5, 0.75, 0.5, 0.0625, 0.25, 0.125, 0.25, 0.0625, 1, 1, 1]
    even = [9, *[0.5, 0.375] * 3]
    assert timing.run_seconds({"slow": clock.run(slow), "even": clock.run(even)}) == {"slow": 0.25, "even": 0.375}


def test_short_runs_are_timed_seven_times_a_round(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", clock)
    taken = [1.0, *([5e-3, *[2e-3] * 3, 1e-3, *[4e-3] * 3] * 3)]
    assert timing.run_seconds({"short": clock.run(taken)}) == pytest.approx({"short": 2e-3})


def test_the_command_shows_the_choice(pytrt, clock, tmp_path):
    import onnx

    clock(int8=0.002, float32=0.001)
    onnx.save(conv_net(), tmp_path / "net.onnx")
    ptp.engines.calibrate(conv_net(), calibrator := MinMaxCalibrator([{"data": image()}]), progress=False)
    calibrator.compute_table().write(tmp_path / "net.cache")
    code, out, err = pytrt("build", "net.onnx", "--engine", "cpu", "--precision", "int8", "-o", "net.engine")
    assert code == 0, err
    assert "precision chosen: float32: INT8 takes 2 ms, float32 1 ms" in out
    assert "engine cpu, int8, which computes in fp32 (INT8 takes 2 ms, float32 1 ms)" in " ".join(out.split())
    code, out, _ = pytrt("inspect", "net.engine")
    assert "precision chosen: float32: the model was built without INT8 layers" in out
    code, out, err = pytrt(
        "build", "net.onnx", "--engine", "cpu", "--precision", "int8", "--setting", "int8=always", "-o", "net.engine"
    )
    assert code == 0, err
    assert "precision chosen" not in out
