"""The benchmark of modes, on a CPU and with small photos."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

from benchmarks.training import modes  # noqa: E402

TINY = ["--device", "cpu", "--networks", "compact", "--batch", "2", "--input", "64", "--seconds", "0.05"]
NAMES = [each.name for each in modes.SHARED]
ALONE = [1.0, 2.0, 1.0, *[1.0] * 6]
TOGETHER = [1.1, 2.2, 1.1, *[1.5] * 6]  # of the first step the same shares


class Ranks:
    """In the place of a group: it finds what a table says of each way to train, or ends."""

    started: list[list[str]]
    findings: dict[str, dict]

    def __init__(self, program, job, world, folder, *, beside=1):
        self.tasks, self.world = job["tasks"], world
        self.started.append([task["name"] for task in self.tasks])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait(self, _):
        pass

    def result(self, number, _):
        name = self.tasks[number]["name"]
        losses = ALONE if name.startswith((modes.ONE, modes.INDEPENDENT)) else TOGETHER
        spread = 0.3 if name.startswith(modes.INDEPENDENT) else 0.0
        usual = {"losses": losses, "spread": spread, "rate": 100.0 * self.world, "step_ms": 1.0, "memory_gb": 0.0}
        found = usual | self.findings.get(name, {})
        if "dies" in found:
            raise RuntimeError(found["dies"])
        return found


def measured(monkeypatch, *more, device="cpu", **findings):
    """The rows of a run, by name, and the names with which each group started."""
    monkeypatch.setattr(Ranks, "started", [], raising=False)
    monkeypatch.setattr(Ranks, "findings", findings, raising=False)
    monkeypatch.setattr(modes, "Group", Ranks)
    monkeypatch.setattr(modes, "forget_choices", lambda: None)
    given = modes._parse([*TINY, "--device", device, *more])
    return {row.name: row for row in modes._rows(given)}, Ranks.started


def test_rows_are_relative_to_one_rank(monkeypatch):
    rows, started = measured(monkeypatch, replicated={"rate": 190.0})
    assert started == [[modes.ONE], NAMES[:2] + NAMES[2:4] + NAMES[4:]]
    assert [row.reason for row in rows.values()] == [""] * 9
    assert (rows["replicated"].scaling, rows["independent"].scaling) == (1.9, 2.0)
    assert [row.own for row in rows.values()] == [True] * 3 + [False] * 2 + [True] * 4


def test_captured_rows_are_relative_to_a_captured_one(monkeypatch):
    rows, started = measured(monkeypatch, device="cuda", **{"one rank, CUDA graphs": {"rate": 150.0}})
    assert started[0] == [modes.ONE, modes.ONE + modes.GRAPHS]
    assert rows["independent, CUDA graphs"].scaling == pytest.approx(200 / 150)
    assert rows["independent"].scaling == 2.0


def test_a_way_that_ends_its_ranks_does_not_end_the_others(monkeypatch):
    dies = {"dies": "not done within 180 s"}
    rows, started = measured(monkeypatch, independent=dies, parameter_server=dies)
    assert [row.reason for row in rows.values()].count(dies["dies"]) == 2
    assert started == [[modes.ONE], NAMES, NAMES[2:]]
    assert list(rows) == [modes.ONE, *NAMES]


def test_what_does_not_compute_the_same_is_not_told_as_a_figure(monkeypatch):
    wrong = [*TOGETHER[:5], 2.5, *TOGETHER[6:]]
    rows, _ = measured(
        monkeypatch,
        distributed_replicated={"losses": wrong},
        parameter_server={"spread": 0.01},
        independent={"losses": TOGETHER},
        **{"replicated, staged_vars": {"losses": wrong}},
    )
    assert "first losses differ by 0.67" in rows["distributed_replicated"].reason
    assert "weights are apart by 0.01" in rows["parameter_server"].reason
    assert "first losses differ" in rows["independent"].reason
    assert rows["replicated, staged_vars"].reason == ""  # which are compared of the first step
    assert rows["distributed_replicated"].rate == 0


@pytest.mark.parametrize(("lost", "left"), [("replicated", ""), (modes.ONE, "nothing to compare")])
def test_without_a_comparison_there_is_no_figure(monkeypatch, lost, left):
    """Where `replicated` ended, the first step is still compared with that of one rank."""
    rows, _ = measured(monkeypatch, **{lost: {"dies": "lost"}})
    assert left in rows["independent"].reason
    if lost == "replicated":
        assert rows["distributed_replicated"].reason == ""
    else:
        assert left in rows["replicated"].reason


def test_no_row_begins_after_the_end(monkeypatch, capsys):
    rows, _ = measured(monkeypatch, independent={"late": True})
    assert list(rows) == [modes.ONE, "replicated"]
    assert "the rest is left out" in capsys.readouterr().err


def test_what_the_compiler_sees_as_different_is_compiled_ahead(monkeypatch):
    _, started = measured(monkeypatch, "--ahead")
    assert started[:3] == [["replicated"], ["independent"], ["parameter_server"]]


def test_the_page_shows_the_record(tmp_path, monkeypatch):
    monkeypatch.setattr(Ranks, "started", [], raising=False)
    monkeypatch.setattr(Ranks, "findings", {"parameter_server": {"dies": "no such mode here"}}, raising=False)
    monkeypatch.setattr(modes, "Group", Ranks)
    record = tmp_path / "record.json"
    assert modes.main([*TINY, "--docs", str(tmp_path / "docs"), "--json", str(record)]) == 0
    assert [row["name"] for row in json.loads(record.read_text())["rows"]] == [modes.ONE, *NAMES]
    page = (tmp_path / "docs" / "training_benchmarks.md").read_text()
    assert "| compact | replicated | 2 | 200 | 2.000 | 1.00 | 0.0 | 0.0e+00 | equal |" in page
    assert "| compact | independent | 2 | 200 | 2.000 | 1.00 | 0.0 | 0.0e+00 | 3.0e-01 apart |" in page
    assert "- compact, parameter_server: no such mode here" in page


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_mode_runs_in_ranks_of_its_own(tmp_path: Path):
    record = tmp_path / "record.json"
    assert modes.main([*TINY, "--docs", str(tmp_path / "docs"), "--json", str(record)]) == 0
    rows = json.loads(record.read_text())["rows"]
    assert [row["name"] for row in rows] == [modes.ONE, *NAMES]
    for row in rows:
        if row["own"] or not row["reason"]:  # a package of the others may be missing
            assert row["reason"] == ""
            assert row["rate"] > 0
            assert row["difference"] < 1e-3
            assert (row["spread"] == 0) == (row["name"] != modes.INDEPENDENT)


def test_a_time_limit_ends_it_with_what_was_measured(tmp_path, monkeypatch):
    record = tmp_path / "record.json"

    def rows(_):
        yield modes.Row("compact", modes.ONE, 1, rate=5.0)
        os.kill(os.getpid(), signal.SIGTERM)
        yield modes.Row("compact", "replicated", 2, rate=9.0)

    monkeypatch.setattr(modes, "_rows", rows)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        assert modes.main([*TINY, "--docs", str(tmp_path / "docs"), "--json", str(record)]) == 0
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [row["rate"] for row in json.loads(record.read_text())["rows"]] == [5.0]
    assert "| compact | one rank | 1 | 5 |" in (tmp_path / "docs" / "training_benchmarks.md").read_text()


def test_a_chosen_row_is_measured_with_what_it_is_compared_with(monkeypatch):
    rows, _ = measured(monkeypatch, "-k", "parameter", "-k", "staged", device="cuda")
    assert list(rows) == [modes.ONE, modes.REPLICATED, "replicated, staged_vars", "parameter_server"]
    rows, _ = measured(monkeypatch, "-k", "independent, cuda graphs", device="cuda")
    assert set(rows) == {modes.ONE, modes.ONE + modes.GRAPHS, modes.REPLICATED, modes.INDEPENDENT + modes.GRAPHS}
