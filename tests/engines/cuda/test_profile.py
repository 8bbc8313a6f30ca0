"""Times of steps as a table, a trace and a chart; the command without a GPU."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytrtplugins.cli import main
from pytrtplugins.cli.shared import loading
from pytrtplugins.engines.cuda import CudaEngine
from pytrtplugins.engines.cuda.plan.arena import Layout
from pytrtplugins.engines.cuda.plan.fallbacks import ARRAYS, UNCAPTURED, fallbacks
from pytrtplugins.engines.cuda.plan.plan import Plan, Step
from pytrtplugins.engines.cuda.plan.schedule import Schedule
from pytrtplugins.engines.cuda.profile import Profile, StepTime, step_time
from pytrtplugins.engines.cuda.run.context import CudaContext
from pytrtplugins.errors import UsageError
from pytrtplugins.tensor import DType
from tests.engines.cuda.conftest import darknet_model
from tests.engines.cuda.gpu_clock import GpuClock
from tests.engines.cuda.host import run_on_host

STEPS = (
    StepTime("first", "conv", "hopper m64n64", 8.0, 1_600_000_000, 4_000_000, 0),
    StepTime("pool", "pool", "", 2.0, 0, 1_000_000, 1),
)
FOUND = Profile(STEPS, 9.5)


@pytest.mark.parametrize(("runs", "microseconds"), [(1, 50_000), (4, 50_000), (20, 50_000)])
def test_a_wait_of_50_ms_takes_50_000_microseconds_in_each_of_some_runs(runs, microseconds):
    clock = GpuClock()
    context = SimpleNamespace(_cupy=SimpleNamespace(cuda=clock), _stream=clock.Stream())
    assert CudaContext._time(context, clock.work(50), runs) == pytest.approx(microseconds)
    assert clock.now == pytest.approx(7 + 50 * (runs + 1))  # one before


def test_the_table_has_shares_rates_and_both_sums():
    lines = FOUND.table.splitlines()
    assert lines[1].split() == ["first", "conv", "8.00", "80.0", "200.0", "500", "hopper", "m64n64"]
    assert lines[2].split() == ["pool", "pool", "2.00", "20.0", "500"]
    assert lines[3].split() == ["sum", "10.00"]
    assert lines[4].split() == ["one", "graph", "9.50"]


def test_the_table_has_the_share_of_steps_that_fall_back():
    rows = ("pick", 2.5, ARRAYS), ("count", 7.5, UNCAPTURED)
    more = (StepTime(name, "generic", "", time, 0, 0, 0, fallback) for name, time, fallback in rows)
    assert Profile((*STEPS, *more), 20.0).table.splitlines()[-2:] == [
        "run array by array: 1 steps, 2.50 µs, 12.5 % of the sum",
        "run outside of the CUDA graph: 1 steps, 7.50 µs, 37.5 % of the sum",
    ]


def test_steps_that_fall_back_are_counted_and_named():
    def step(name, op, kind="generic", capturable=True):
        return Step(kind, name, op, {}, (), (), capturable=capturable)

    steps = (step("first", "Conv", "conv"), step("pick", "Gather"), step("find", "NonZero", capturable=False))
    plan = Plan(steps, {}, {}, (), {}, Layout({}, 0), Schedule((), (), ()))
    arrays, uncaptured = "1 of 3 steps: 'pick' (Gather)", "1 of 3 steps: 'find' (NonZero)"
    assert fallbacks(plan) == {ARRAYS: arrays, UNCAPTURED: uncaptured}
    many = replace(plan, steps=tuple(step(f"pick{number}", "Gather") for number in range(7)))
    assert fallbacks(many)[ARRAYS].endswith("'pick4' (Gather), and 2 more")
    assert not fallbacks(replace(plan, steps=steps[:1]))


def test_the_trace_has_one_event_a_step_end_to_end(tmp_path):
    FOUND.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    rows = [(event["name"], event["ts"], event["dur"], event["tid"]) for event in events]
    assert rows == [("first", 0.0, 8.0, 0), ("pool", 8.0, 2.0, 1)]


@pytest.mark.parametrize(("name", "magic"), [("chart.png", b"\x89PNG"), ("chart.svg", b"<?xml")])
def test_the_chart_is_an_image_of_the_kind_that_the_name_says(tmp_path, name, magic):
    FOUND.draw(tmp_path / name, "layers")
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_networks_operations_are_those_of_its_convolutions():
    model, inputs = darknet_model("yolov2-tiny-voc.cfg", size=32)
    _, execution = run_on_host(model, inputs)
    steps = [step_time(step, execution.plan, 1.0, "", 0) for step in execution.plan.steps]
    expected = 0
    for channels, filters, side, kernel in [
        (3, 16, 32, 3), (16, 32, 16, 3), (32, 64, 8, 3), (64, 128, 4, 3), (128, 256, 2, 3), (256, 512, 1, 3),
        (512, 1024, 1, 3), (1024, 1024, 1, 3), (1024, 125, 1, 1),
    ]:  # fmt: skip
        expected += 2 * channels * filters * side**2 * kernel**2
    assert sum(step.operations for step in steps) == expected


@pytest.mark.parametrize(("float_type", "size"), [(DType.FLOAT32, 4), (DType.FLOAT16, 2)])
def test_a_steps_bytes_are_those_of_what_its_kernel_reads_and_writes(float_type, size):
    """The image, biases and the head are float32; weights lie in the type that is multiplied."""
    model, inputs = darknet_model("yolov2-tiny-voc.cfg", size=32)
    _, execution = run_on_host(model, inputs, float_type)
    found = [step_time(step, execution.plan, 1.0, "", 0).bytes for step in execution.plan.steps]
    first = 4 * 3 * 32**2 + size * 16 * 3 * 3**2 + 4 * 16 + size * 16 * 16**2  # with its pool
    second = size * 16 * 16**2 + size * 32 * 16 * 3**2 + 4 * 32 + size * 32 * 8**2
    pool, last = 2 * size * 512, size * 1024 + size * 125 * 1024 + 4 * 125 + 4 * 125
    assert (found[0], found[1], found[6], found[-2], found[-1]) == (first, second, pool, last, 2 * 4 * 125)


def test_without_a_gpu_the_command_says_why(tmp_path, capsys):
    if not CudaEngine.availability().reason:
        pytest.skip("this machine has a GPU")
    model, _ = darknet_model("yolov2-tiny-voc.cfg", size=32)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(SystemExit) as caught:
        main(["profile", str(tmp_path / "net.onnx")])
    assert caught.value.code == 2
    assert "engine 'cuda' cannot be used here" in (err := capsys.readouterr().err.replace("\n", " "))
    assert "Do: " in err


def test_kernels_are_chosen_for_the_batch_that_is_timed(monkeypatch):
    asked = {}

    def open_engine(path, **options):
        asked.update(options)
        raise UsageError("enough")

    monkeypatch.setattr(loading, "open_engine", open_engine)
    with pytest.raises(SystemExit):
        main(["profile", "net.onnx", "--batch", "8"])
    assert asked["settings"] == {"batch": 8}
