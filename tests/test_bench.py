"""Engines beside each other: outputs are compared first, then each has its turn."""

import dataclasses
import datetime
import functools
import inspect
import json
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins import bench as module
from pytrtplugins.bench import bench
from pytrtplugins.errors import UnavailableError, UsageError

FAST = {"rounds": 3, "seconds": 0.01, "progress": False}


def times(factor, dims=(1, 4)):
    """y = factor · x."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("x", "y")]
    weights = numpy_helper.from_array(np.float32(factor), "w")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def built(factor=2.0, engine="reference", **options):
    return functools.partial(ptp.build, times(factor, **options), engine=engine, progress=False)


def unavailable():
    raise UnavailableError("engine 'x' cannot be used here: no driver.\nDo: nvidia-smi")


def test_rows_have_times_of_all_rounds_and_agree():
    found = bench({"a": built(), "b": built(engine="onnxruntime")}, **FAST)
    assert [(row.name, row.engine, row.precision) for row in found.rows] == [
        ("a", "reference", "fp32"),
        ("b", "onnxruntime", "fp32"),
    ]
    assert found.agree
    built_here = built()()
    assert (found.rows[0].computed, found.rows[0].details) == (built_here.arithmetic, built_here.availability().details)
    for row in found.rows:
        assert row.reason == ""
        assert row.error == 0
        assert 0 < row.p50_ms <= row.p90_ms <= row.p99_ms
        assert row.speed == found.rows[0].p50_ms / row.p50_ms
        assert row.runs % 3 == 0
        assert row.runs >= 9
        assert row.rate > 0
    assert found.inputs == {"x": (1, 4)}
    assert {"Python", "processor", "GPU", "pytrtplugins"} <= set(found.machine)
    assert json.loads(json.dumps(found.to_dict()))["rows"][1]["name"] == "b"


def test_engines_take_turns(monkeypatch):
    turns = []
    take_turn = module._take_turn
    monkeypatch.setattr(module, "_take_turn", lambda each, *rest: turns.append(each.row.name) or take_turn(each, *rest))
    bench({"a": built(), "b": built()}, **FAST)
    assert turns == ["a", "b"] * 3


@pytest.mark.parametrize(("factor", "close"), [(2.0005, True), (2.1, False), (np.nan, False), (np.inf, False)])
def test_what_computes_something_else_is_not_timed(factor, close):
    found = bench({"a": built(), "b": built(factor), "c": built()}, **FAST)
    assert [bool(row.runs) for row in found.rows] == [True, close, True]
    assert found.agree == close
    if not close:
        assert found.rows[1].reason.startswith("its outputs are not those of a: ")
    if np.isnan(factor):
        assert found.to_dict()["rows"][1]["error"] is None


def test_the_same_infinities_and_nans_are_no_distance():
    a = np.array([np.nan, np.inf, -np.inf, 3.0])
    assert module._distance(a, a.copy()) == 0
    assert module._distance(a + np.array([0, 0, 0, 0.3]), a) == pytest.approx(0.1)
    assert module._distance(a, np.array([0, np.inf, -np.inf, 3.0])) == np.inf
    assert module._distance(np.zeros(3), np.zeros(4)) == np.inf
    assert module._distance(np.ones(3), np.zeros(3)) == np.inf


def test_the_loosest_precision_of_two_sets_the_limit():
    first = SimpleNamespace(row=module.Row("a", precision="fp32"), outputs={"y": np.ones(4)})
    for precision, error, ok in (
        ("fp32", 1e-2, False),
        ("fp16", 1e-2, True),
        ("fp16", 0.2, False),
        ("int8", 0.2, True),
    ):
        row = module._row_with_error(module.Row("b", "e", precision), {"y": np.ones(4) + error}, first)
        assert (row.reason == "") == ok
        assert row.error == pytest.approx(error)
    assert "int8" not in module._LIMITS
    assert module._row_with_error(module.Row("b", "e", "int8"), {"y": np.ones(3)}, first).reason
    assert module._row_with_error(module.Row("b", "e", "int8"), {"z": np.ones(4)}, first).reason


def test_percentiles_are_of_all_runs_and_the_median_is_of_rounds():
    rounds = [[0.001 * number for number in range(1, 101)], [0.003] * 100, [0.002] * 100]
    subject = SimpleNamespace(row=module.Row("a"), rounds=rounds, rates=[10.0, 30.0, 20.0])
    row = module._row_with_times(subject, subject)
    assert row.p50_ms == pytest.approx(3.0)  # of 50.5, 3 and 2
    assert row.p90_ms == pytest.approx(70.0)  # 30 of 300 are slower
    assert row.p99_ms == pytest.approx(97.0)
    assert (row.runs, row.rate, row.speed) == (300, 20.0, 1.0)


@pytest.mark.parametrize(
    ("count", "p50", "p90", "p99"), [(1, 1, 1, 1), (9, 5, 9, 9), (10, 5.5, 9, 10), (11, 6, 10, 11), (100, 50.5, 90, 99)]
)
def test_a_percentile_is_the_least_time_that_so_many_runs_do_not_exceed(count, p50, p90, p99):
    """Times are 1, 2, 3, … milliseconds, in no order."""
    times = np.random.default_rng(0).permutation(np.arange(1, count + 1) / 1000)
    subject = SimpleNamespace(row=module.Row("a"), rounds=[times.tolist()], rates=[1.0])
    row = module._row_with_times(subject, subject)
    assert (row.p50_ms, row.p90_ms, row.p99_ms) == pytest.approx((p50, p90, p99))


class ClockedEngine:
    """An engine whose build, runs and streams take times of a clock's."""

    name, precision, arithmetic = "clocked", "fp32", None

    def __init__(self, clock, run_s, stream_s):
        self.clock, self.run_s, self.stream_s = clock, run_s, stream_s
        clock.now += 2

    def availability(self):
        return SimpleNamespace(details="")

    def create_context(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    def run(self, inputs):
        self.clock.now += self.run_s
        return {"y": inputs["x"]}

    def stream(self, inputs, slots):
        for each in inputs:
            self.clock.now += self.stream_s
            yield {"y": each["x"]}


def test_every_figure_of_a_row_is_what_the_clock_says(monkeypatch):
    """Runs of 50 ms and of 20 ms; several at a time 25 and 40 a second: more than one by one, and less."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock.now)
    engines = {
        "a": functools.partial(ClockedEngine, clock, 0.050, 0.040),
        "b": functools.partial(ClockedEngine, clock, 0.020, 0.025),
    }
    x = {"x": np.ones(1, np.float32)}
    a, b = bench(engines, lambda engine: x, rounds=4, seconds=2.0, slots=3, progress=False).rows
    for row, run_ms, speed, runs, rate in ((a, 50, 1, 40, 25), (b, 20, 2.5, 100, 40)):
        assert row.build_s == pytest.approx(2)
        assert (row.p50_ms, row.p90_ms, row.p99_ms) == pytest.approx((run_ms,) * 3)
        assert (row.speed, row.rate) == pytest.approx((speed, rate))
        assert row.runs == runs


def test_a_distance_that_equals_the_limit_is_within_it():
    first = SimpleNamespace(row=module.Row("a", precision="fp32"), outputs={"y": np.array([1000.0])})
    for value, ok in ((1001.0, True), (999.0, True), (1001.001, False), (998.999, False)):
        assert (
            module._row_with_error(module.Row("b", "e", "fp32"), {"y": np.array([value])}, first).reason == ""
        ) == ok


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_worst_of_all_outputs_counts(place):
    wanted = {name: np.full(4, 2.0) for name in "xyz"}
    outputs = {name: array + (number == place) for number, (name, array) in enumerate(wanted.items())}
    row = module._row_with_error(
        module.Row("b", "e", "fp32"), outputs, SimpleNamespace(row=module.Row("a", precision="fp32"), outputs=wanted)
    )
    assert row.error == 0.5
    assert row.reason == "its outputs are not those of a: 5.0e-01 of their norm off"


def test_what_cannot_be_built_is_a_row_with_its_reason():
    found = bench({"a": unavailable, "b": built()}, **FAST)
    assert found.rows[0].reason == "engine 'x' cannot be used here: no driver."
    assert found.agree  # what ran
    assert found.rows[1].runs


def test_the_first_error_is_raised_where_nothing_can_be_built():
    with pytest.raises(UnavailableError, match="no driver"):
        bench({"a": unavailable}, **FAST)


def test_growth_of_both_memories_is_told(monkeypatch):
    used = iter([(100 << 20, 1 << 30), (130 << 20, 3 << 30)])
    monkeypatch.setattr(module, "_memory_use", lambda cupy: next(used))
    (row,) = bench({"a": built()}, **FAST).rows
    assert (row.host_mib, row.gpu_mib) == (30, 2048)


def test_memory_in_use_is_read():
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(memGetInfo=lambda: (30, 100))))
    host, gpu = module._memory_use(cupy)
    assert host > 1 << 20
    assert gpu == 70


def test_free_dims_besides_the_batch_need_inputs():
    free = built(dims=(1, "n"))
    with pytest.raises(UsageError, match="give the inputs"):
        bench({"a": free}, **FAST)
    found = bench({"a": free}, lambda engine: {"x": np.ones((1, 7), np.float32)}, **FAST)
    assert found.inputs == {"x": (1, 7)}


@pytest.mark.parametrize("options", [{"rounds": 0}, {"slots": 0}])
def test_numbers_are_held_against_limits(options):
    with pytest.raises(UsageError, match=f"bench: {next(iter(options))}: expected"):
        bench({"a": built()}, **options)


def test_a_chart_names_the_rows_that_were_timed(tmp_path):
    found = bench({"one": built(), "two": built(3.0)}, **FAST)
    found.draw(tmp_path / "a.svg", "net.onnx")
    text = (tmp_path / "a.svg").read_text()  # matplotlib writes each text as a comment, too
    assert "<!-- one -->" in text
    assert "<!-- two -->" not in text
    assert "<!-- net.onnx -->" in text
    with pytest.raises(UsageError, match=r"unknown suffix '.gif'"):
        found.draw(tmp_path / "a.gif")


def test_a_chart_has_the_medians_as_bars_and_the_percentiles_as_marks(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(module, "save", lambda figure, path: figures.append(figure))
    rows = tuple(module.Row(str(n), p50_ms=n + 1.0, p90_ms=n + 2.0, p99_ms=n + 3.0) for n in range(2))
    module.Benchmark(rows, 5, 2, {}, {}, 0.5, "today").draw(tmp_path / "a.svg")
    (axes,) = figures[0].axes
    assert [bar.get_width() for bar in axes.patches] == [1.0, 2.0]
    assert [marks.get_offsets().tolist() for marks in axes.collections] == [[[2, 0], [3, 1]], [[3, 0], [4, 1]]]


def test_a_row_without_figures_says_nothing_but_its_name():
    assert not any(getattr(module.Row("a"), each.name) for each in dataclasses.fields(module.Row)[1:])


def test_a_benchmark_says_when_and_under_which_load_it_began(monkeypatch):
    monkeypatch.setattr(module.os, "getloadavg", lambda: (2.5, 7.0, 8.0))
    before = datetime.datetime.now(datetime.UTC)
    found = bench({"a": built()}, **FAST)
    assert (found.rounds, found.slots, found.load) == (3, 2, 2.5)
    began = datetime.datetime.fromisoformat(found.date)
    assert before.replace(microsecond=0) <= began <= datetime.datetime.now(datetime.UTC)


def test_inputs_are_made_once_for_all_engines():
    asked = list[str]()

    def inputs(engine):
        asked.append(engine.name)
        return {"x": np.ones((1, 4), np.float32)}

    assert bench({"a": built(), "b": built(engine="onnxruntime")}, inputs=inputs, **FAST).agree
    assert asked == ["reference"]


@pytest.mark.parametrize(
    ("engines", "wanted"),
    [
        ({"cpu": True}, False),
        ({"cuda": False, "tensorrt": True}, True),
        ({"cuda": False, "cpu": True}, False),
        ({"cuda": True}, True),
    ],
)
def test_memory_of_a_gpu_is_read_where_one_of_its_engines_can_be_used(monkeypatch, engines, wanted):
    rows = [SimpleNamespace(name=name, available=available) for name, available in engines.items()]
    monkeypatch.setattr(module, "availability", lambda: rows)
    monkeypatch.setattr(module, "require", lambda name, extra: name)
    assert module._cupy() == ("cupy" if wanted else None)


def test_what_is_measured_where_nothing_is_said():
    given = [each.default for each in inspect.signature(bench).parameters.values()]
    assert given == [inspect.Parameter.empty, None, 5, 2.0, 2, True]
