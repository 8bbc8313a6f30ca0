"""A table is built, measured, and taken up again where it was interrupted."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.errors import NoDataError, PrecisionError, UsageError
from pytrtplugins.mlops.tables import TablePlan, VerificationTask, make_table, table, to_markdown, write_html
from pytrtplugins.mlops.tables.memory import Memory
from tests.clock import Clock

from .people import network

QUICK = {"batches": (1, 2), "rounds": 1, "seconds": 0.01}


class Nothing:
    """What `bench` gives where nothing is timed."""

    rows = ()


@pytest.fixture
def measured(monkeypatch):
    """What was measured of memory, without processes."""
    calls = []

    def memory(path, batch, modules):
        calls.append((path.name, batch))
        return Memory(2.0, 0.0)

    monkeypatch.setattr(table, "measure_memory", memory)
    return calls


@pytest.fixture
def task(faces):
    seen, rest = faces.split(0.5)
    return VerificationTask(rest, seen, "0..255")


def test_a_table_has_a_row_for_each_engine_precision_and_calibration(task, tmp_path, measured):
    plan = TablePlan(
        engines=("onnxruntime", "reference"),
        precisions=("fp32", "int8"),
        algorithms=("minmax", "percentile"),
        samples=(3, 6),
        **QUICK,
    )
    found = make_table(network(), task, plan, name="net", work=tmp_path / "work")
    names = [row.variant.name for row in found.rows]
    assert names[:5] == [
        "onnxruntime fp32",
        "onnxruntime int8, minmax on 3",
        "onnxruntime int8, minmax on 6",
        "onnxruntime int8, percentile on 3",
        "onnxruntime int8, percentile on 6",
    ]
    assert len(names) == 10
    assert all(row.reason == "" for row in found.rows)
    timed = [row.variant.name for row in found.rows if row.latency]
    assert timed == [
        "onnxruntime fp32", "onnxruntime int8, minmax on 3", "reference fp32", "reference int8, minmax on 3"
    ]  # fmt: skip
    first, int8 = found.rows[0], found.rows[1]
    assert first.figures["cosine_mean"] == pytest.approx(1)
    assert 0.9 < int8.figures["cosine_mean"] < 0.999999
    computed = [row.computed.precision for row in found.rows]
    assert computed == [row.variant.precision for row in found.rows]
    assert f"onnxruntime int8, minmax on 3: {int8.computed}" in found.notes
    again = make_table(network(), task, plan, name="net", work=tmp_path / "work")
    assert [row.computed for row in again.rows] == [row.computed for row in found.rows]  # from the journal
    assert set(first.latency) == {1, 2}
    assert first.latency[1].speed == 1.0
    assert first.file_mib > 0
    assert first.host_mib == 2.0
    assert len(measured) == 10
    assert {batch for _, batch in measured} == {1}


def test_accuracy_runs_in_batches_that_kernels_were_chosen_for(task, tmp_path, measured, monkeypatch):
    rows = []
    real = table.load_engine
    built = []

    class Watched:
        def __init__(self, engine):
            self.engine, self.inputs, self.outputs = engine, engine.inputs, engine.outputs

        def create_context(self):
            context = self.engine.create_context()
            run = context.run
            context.run = lambda arrays: rows.append(len(arrays["data"])) or run(arrays)
            return context

    monkeypatch.setattr(table, "load_engine", lambda path: Watched(real(path)))
    monkeypatch.setattr(table, "bench", lambda engines, *given, **more: built.append(list(engines)) or Nothing)
    plan = TablePlan(engines=("reference",), precisions=("fp32",), batches=(1, 4), rounds=1, seconds=0.01)
    make_table(network(), task, plan, work=tmp_path)
    assert rows == [4, 4, 4]  # of nine photos; the last one is repeated
    assert built == [["reference fp32"]] * 2


def test_two_precision_files_are_two_rows_and_a_changed_one_is_built_anew(task, tmp_path, measured, monkeypatch):
    monkeypatch.setattr(table, "bench", lambda *given, **more: Nothing)
    seen = {}
    real = table.build
    monkeypatch.setattr(
        table, "build", lambda model, *, precision, **more: seen.update({precision: 1}) or real(model, **more)
    )
    files = [tmp_path / "A.yaml", tmp_path / "B.yaml"]
    for path in files:
        path.write_text(path.stem)
    plan = TablePlan(engines=("reference",), precisions=tuple(map(str, files)), **QUICK)
    make_table(network(), task, plan, work=tmp_path / "work")
    assert list(seen) == list(map(str, files))
    assert len(list((tmp_path / "work").glob("*.engine"))) == 2
    seen.clear()
    files[1].write_text("other")
    make_table(network(), task, plan, work=tmp_path / "work")
    assert list(seen) == [str(files[1])]


def test_figures_beside_another_first_row_are_measured_anew(task, tmp_path, measured, monkeypatch):
    monkeypatch.setattr(table, "bench", lambda *given, **more: Nothing)
    kinds = ("fp32", "int8")
    tables = [
        make_table(
            network(), task, TablePlan(engines=("reference",), precisions=order, samples=(3,), **QUICK), work=tmp_path
        )
        for order in (kinds, kinds[::-1])
    ]
    for found in tables:
        assert found.rows[0].figures["cosine_mean"] == pytest.approx(1)
        assert found.rows[1].figures["cosine_mean"] < 0.999999


def test_the_scales_stay_in_the_folder_as_a_cache_that_other_commands_take(task, tmp_path, measured, monkeypatch):
    monkeypatch.setattr(table, "bench", lambda *given, **more: Nothing)
    plan = TablePlan(engines=("reference",), precisions=("int8",), samples=(3,), **QUICK)
    make_table(network(), task, plan, work=tmp_path)
    cache = tmp_path / "minmax-on-3.cache"
    again = ptp.build(network(), engine="reference", precision="int8", calibration=cache, progress=False)
    x = task.inputs(again.inputs, 2)
    engines = again, ptp.load_engine(tmp_path / "reference-int8-minmax-on-3.engine")
    found = [engine.create_context().run(x)["embedding"] for engine in engines]
    assert np.array_equal(*found)
    monkeypatch.setattr(table, "calibrate", None)  # it is not called again
    make_table(network(), task, replace(plan, engines=("onnxruntime",)), work=tmp_path)
    cache.unlink()
    with pytest.raises(TypeError):
        make_table(network(), task, replace(plan, engines=("cpu",)), work=tmp_path)


def test_an_interrupted_table_goes_on_where_it_was(task, tmp_path, measured, monkeypatch):
    plan = TablePlan(engines=("reference",), precisions=("fp32", "int8"), samples=(3,), **QUICK)
    built = []
    real = table.build
    monkeypatch.setattr(table, "build", lambda *given, **more: built.append(more["precision"]) or real(*given, **more))

    def stop(*given, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(table, "bench", stop)
        with pytest.raises(KeyboardInterrupt):
            make_table(network(), task, plan, work=tmp_path)
    assert built == ["fp32", "int8"]
    assert len(measured) == 2
    found = make_table(network(), task, plan, work=tmp_path)
    assert built == ["fp32", "int8"]
    assert len(measured) == 2
    assert all(row.latency for row in found.rows)
    again = make_table(network(), task, plan, work=tmp_path)
    assert again.rows == found.rows
    make_table(network(seed=3), task, plan, work=tmp_path)  # another network: nothing is taken over
    assert built == ["fp32", "int8"] * 2


@pytest.fixture(scope="module")
def engine_of_people():
    return ptp.build(network(), engine="reference", progress=False)


@pytest.fixture
def work_done(engine_of_people, monkeypatch, tmp_path):
    """Makes a table in one folder, again and again; gives what was done for it, each kind as often as it was done."""
    done = []

    def note(kind, real):
        return lambda *given, **more: (done.append(kind), real(*given, **more))[1]

    class Calibrator:
        def __init__(self, batches, cache):
            self.cache = cache

        def store_table(self, scales, network):
            self.cache.write_text(scales)

    clock = Clock()

    def build(*given, **more):
        clock.now += 1 / 4
        return engine_of_people

    row = {"name": "", "reason": "", "p50_ms": 2.0, "p99_ms": 3.0, "rate": 500.0, "speed": 1.0}

    def bench(engines, *given, **more):
        return SimpleNamespace(rows=[SimpleNamespace(**{**row, "name": name}) for name in engines])

    replaced: dict[str, Any] = {
        "build": build,
        "calibrate": lambda *given, **more: "scales",
        "bench": bench,
        "measure_memory": lambda path, batch, modules: Memory(float(batch), 0.0),
    }
    for name, function in replaced.items():
        monkeypatch.setattr(table, name, note(name, function))
    monkeypatch.setattr(table, "time", clock)
    monkeypatch.setattr(table, "network_digest", lambda model: "digest")
    monkeypatch.setattr(table, "CALIBRATORS", dict.fromkeys(table.CALIBRATORS, Calibrator))
    monkeypatch.setattr(VerificationTask, "measure", note("measure", lambda *given: ({"cosine_mean": 1.0}, [])))

    def make(task, plan, model=None):
        done.clear()
        make.table = make_table(model or network(), task, plan, work=tmp_path / "work", progress=False)
        return Counter(done)

    make.folder = tmp_path / "work"
    return make


BASE = TablePlan(engines=("onnxruntime",), samples=(3,), batches=(1, 2), seconds=0.01)
AGAIN = Counter(build=2, calibrate=1, measure=2, measure_memory=2, bench=2)
"""What the first table of `BASE` takes: two engines, of which one is calibrated, at two batches."""
ONE_MORE = Counter(build=1, calibrate=1, measure=2, measure_memory=1)
"""What one more row takes: the first one is measured again, since the others are compared with it."""
PLANS = {  # of each field of a plan: another value, and what is done again for it
    "engines": (("onnxruntime", "reference"), Counter(build=2, measure=3, measure_memory=2, bench=2)),
    "precisions": (("fp32",), Counter(bench=2)),
    "algorithms": (("minmax", "percentile"), ONE_MORE),
    "samples": ((3, 6), ONE_MORE),
    "batches": ((1, 4), Counter(bench=1)),
    "rounds": (6, AGAIN),
    "seconds": (0.02, AGAIN),
    "threads": (1, AGAIN),
    "settings": ({"batch": 4}, AGAIN),
    "plugins": ({"Reorg": "cuda"}, AGAIN),
    "modules": (("json",), Counter()),
}


@pytest.mark.parametrize("name", [each.name for each in fields(TablePlan)])
def test_a_changed_field_of_the_plan_is_measured_anew_and_nothing_else(task, work_done, name):
    value, expected = PLANS[name]
    assert work_done(task, BASE) == AGAIN
    assert work_done(task, BASE) == Counter()
    assert work_done(task, replace(BASE, **{name: value})) == expected


@pytest.mark.parametrize("changed", ["model", "version", "machine", "data", "calibrated_on", "pixels", "name"])
def test_another_network_machine_version_or_task_begins_anew(task, work_done, changed, faces, monkeypatch):
    assert work_done(task, BASE) == AGAIN
    other, model = replace(task), None
    if changed == "model":
        model = network(seed=3)
    elif changed == "version":
        monkeypatch.setattr(table, "__version__", "0.0.0")
    elif changed == "machine":
        monkeypatch.setattr(table, "machine", lambda: {"processor": "another"})
    elif changed == "name":
        object.__setattr__(other, "name", "another")
    else:
        values = {"data": faces, "calibrated_on": faces, "pixels": "0..1"}
        object.__setattr__(other, changed, values[changed])
    assert work_done(other, BASE, model) == AGAIN


def test_memory_is_that_of_the_first_batch_also_where_it_was_another_before(task, work_done):
    for batches in ((1, 2), (2, 1), (1, 2)):
        work_done(task, replace(BASE, batches=batches))
        assert [row.host_mib for row in work_done.table.rows] == [batches[0]] * 2


def test_rates_are_images_sizes_are_mib_and_builds_are_seconds(task, work_done):
    work_done(task, BASE)
    row = work_done.table.rows[0]
    assert {batch: (each.p50_ms, each.p99_ms, each.rate) for batch, each in row.latency.items()} == {
        1: (2.0, 3.0, 500.0),
        2: (2.0, 3.0, 1000.0),
    }
    size = (work_done.folder / "onnxruntime-fp32.engine").stat().st_size
    assert (row.file_mib, row.build_s) == (size / 2**20, 0.25)


def test_engines_for_other_batches_lie_beside_each_other(task, work_done, monkeypatch):
    """As of engine ``cuda``, whose kernels are chosen for the table's batches."""
    real = table.available_class

    def with_batches(*given):
        return SimpleNamespace(settings=("batch",), always=real(*given).always)

    monkeypatch.setattr(table, "available_class", with_batches)
    built = Counter(build=2, measure=2, measure_memory=2)
    assert work_done(task, BASE) - Counter(bench=2, calibrate=1) == built
    engines = {path.name: path.stat().st_mtime_ns for path in work_done.folder.glob("*.engine")}
    assert work_done(task, replace(BASE, batches=(1, 4))) - Counter(bench=2) == built
    assert work_done(task, BASE) == Counter()
    after = {path.name: path.stat().st_mtime_ns for path in work_done.folder.glob("*.engine")}
    assert (len(after), {name: after[name] for name in engines}) == (4, engines)


def test_engines_that_cannot_build_are_rows_with_the_reason(task, tmp_path, measured):
    plan = TablePlan(engines=("onnxruntime",), precisions=("fp32", "fp16"), samples=(3,), **QUICK)
    found = make_table(network(), task, plan, work=tmp_path)
    assert [bool(row.reason) for row in found.rows] == [False, True]
    assert "fp16" in found.rows[1].reason
    text = to_markdown(found)
    head, rule = text.splitlines()[:2]
    assert rule == "|---|" + "---:|" * (head.count("|") - 2)
    assert "onnxruntime fp16 has no figures: engine 'onnxruntime' has no precision 'fp16'" in text


def test_where_nothing_can_be_built_the_first_error_is_raised(task, tmp_path):
    with pytest.raises(PrecisionError, match="no precision 'fp16'"):
        make_table(network(), task, TablePlan(engines=("onnxruntime",), precisions=("fp16",)), work=tmp_path)


def test_a_fixed_batch_leaves_the_others_out_and_says_so(task, tmp_path, measured):
    plan = TablePlan(engines=("reference",), precisions=("fp32",), batches=(1, 8), rounds=1, seconds=0.01)
    found = make_table(network(batch=1), task, plan, work=tmp_path)
    assert found.batches == (1,)
    assert "| p50 ms |" in to_markdown(found)
    assert list(found.rows[0].latency) == [1]
    assert found.notes == ("the network takes batches of 1 only: 8 left out",)


def test_calibrations_are_shared_between_engines(task, tmp_path, measured, monkeypatch):
    made = []
    real = table.calibrate
    monkeypatch.setattr(table, "calibrate", lambda *given, **more: made.append(given[1]) or real(*given, **more))
    plan = TablePlan(engines=("reference", "onnxruntime"), precisions=("int8",), samples=(3,), **QUICK)
    make_table(network(), task, plan, work=tmp_path)
    assert len(made) == 1
    assert isinstance(made[0], MinMaxCalibrator)


def test_plans_without_sense_are_refused():
    with pytest.raises(UsageError, match="at least one engine"):
        TablePlan(engines=())
    with pytest.raises(UsageError, match="batches"):
        TablePlan(batches=(0,))
    with pytest.raises(UsageError, match="algorithm 'kl'"):
        TablePlan(algorithms=("kl",))


def test_the_page_has_every_figure_and_no_script(task, tmp_path, measured):
    pytest.importorskip("matplotlib")
    plan = TablePlan(engines=("reference",), precisions=("fp32", "int8"), samples=(3, 6), **QUICK)
    found = make_table(network(), task, plan, name="a <net>", data="made up", work=tmp_path / "w")
    write_html(found, tmp_path / "t.html")
    text = (tmp_path / "t.html").read_text()
    assert "<script" not in text
    assert "http" not in text.split("</style>")[1].split("<svg")[0]
    assert "a &lt;net&gt;: verification" in text
    assert "<svg" in text
    assert "verification on made up" in text
    for row in found.rows:
        assert all(f">{cell}</td>" in text for cell in found.cells(row))
    assert json.loads(json.dumps(found.to_dict()))["rows"][1]["variant"]["samples"] == 3
    assert "minmax 3" in text
    assert "TPR at FPR 0.001" in text


def test_a_row_is_what_it_says_also_where_the_engine_finds_float32_faster(task, tmp_path, measured, monkeypatch):
    monkeypatch.setattr(table, "bench", lambda *given, **more: Nothing)
    seen = {}
    real = table.build

    def build(model, *, engine, precision, settings, calibration, **more):
        seen[precision] = settings
        return real(model, engine="reference", **more)

    monkeypatch.setattr(table, "build", build)
    plan = TablePlan(engines=("cpu",), precisions=("fp32", "bf16", "int8"), samples=(3,), **QUICK)
    make_table(network(), task, plan, work=tmp_path)
    assert seen == {"fp32": {}, "bf16": {"bf16": "always"}, "int8": {"int8": "always"}}


def test_rows_that_want_more_images_than_there_are_say_so(task, tmp_path, measured, monkeypatch):
    monkeypatch.setattr(table, "bench", lambda *given, **more: Nothing)
    plan = TablePlan(engines=("reference",), precisions=("int8",), samples=(3, 1000), **QUICK)
    found = make_table(network(), task, plan, work=tmp_path)
    assert [bool(row.figures) for row in found.rows] == [True, False]
    said = to_markdown(found)
    assert "- reference int8, minmax on 1000 has no figures: calibration with 1,000 images: " in said
    assert "faces.npz has 9 for that; pytrt table --augment-calibration makes 90 of them" in said


def test_where_no_row_has_enough_images_that_is_an_error_before_anything_is_timed(task, tmp_path):
    with pytest.raises(NoDataError, match="calibration with 200 images"):
        make_table(network(), task, TablePlan(engines=("reference",), precisions=("int8",)), work=tmp_path)
    assert not np.any([path.suffix == ".engine" for path in tmp_path.iterdir()])
