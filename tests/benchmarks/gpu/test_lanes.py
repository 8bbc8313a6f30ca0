"""Processes that share a list of rows, with a program in the place of the benchmarks."""

import json
import os
import sys
import time
from types import SimpleNamespace

import pytest

from benchmarks.gpu import lanes
from pytrtplugins.engines.cuda.conv.cache import Choice, decode, encode

PROGRAM = """
import argparse, json, os, pathlib, sys, time
from benchmarks.gpu.rows import Claims, read_rows

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=pathlib.Path)
parser.add_argument("--json", type=pathlib.Path)
parser.add_argument("--seconds", type=float)
given, rows = parser.parse_args(), []
groups = read_rows(given.rows)
claims = Claims(pathlib.Path(os.environ["BENCHMARK_CLAIMS"]), os.environ["BENCHMARK_OWNER"], groups)
gpu = os.environ["CUDA_VISIBLE_DEVICES"]
print("cores", len(os.sched_getaffinity(0)), os.environ["XDG_CACHE_HOME"], flush=True)
here = pathlib.Path(os.environ["BENCHMARK_CLAIMS"])
(here / f"here-{gpu}").touch()
while len(list(here.glob("here-*"))) < int(os.environ.get("TOGETHER", "1")):
    time.sleep(0.05)
for row in (row for group in groups for row in group):
    if not claims.take(row):
        continue
    if row == "crash":
        os._exit(9)
    if row == "long":
        pathlib.Path(__file__).with_name("long has begun").touch()
        time.sleep(600)
    info = {"kind": "zoo", "gpu": gpu}
    if row == "fails":
        info["failure"] = "ValueError: no kernel"
    rows.append({"row": row, **info})
    record = {"rows": rows, "left_out": [], "gpu": {"gpu": "NVIDIA H200"}, "date": "2026-11-27"}
    given.json.with_suffix(".part").write_text(json.dumps(record))
    given.json.with_suffix(".part").rename(given.json)  # as a real record: whole, whenever it is read
    time.sleep(0.2)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(lanes, "_LEAST_S", 0.0)
    monkeypatch.setattr(lanes, "_LOOK_S", 0.05)
    monkeypatch.setattr(lanes, "_JOIN_S", 0.1)
    begun = tmp_path / "long has begun"
    clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: time.monotonic() + (1000 if begun.exists() else 0))
    monkeypatch.setattr(lanes, "time", clock)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(lanes.ROOT))

    def run_(text, gpus=("0", "1"), seconds=100):
        (tmp_path / "list.txt").write_text(text)
        record = tmp_path / "joined.json"
        lanes.run(tmp_path / "list.txt", gpus, seconds, record, tmp_path / "work", (sys.executable, str(program)))
        found = json.loads(record.read_text()) if record.exists() else {"rows": []}
        rows = {row["row"]: row for row in found["rows"]}
        return SimpleNamespace(rows=rows, record=found, work=tmp_path / "work")

    return run_


def test_each_row_of_a_list_runs_on_one_of_the_gpus(run, monkeypatch):
    monkeypatch.setenv("TOGETHER", "2")
    found = run("\n\n".join(f"row {number}\npart {number}" for number in range(6)))
    assert len(found.rows) == 12
    assert {info["gpu"] for info in found.rows.values()} == {"0", "1"}
    assert all(found.rows[f"row {number}"]["gpu"] == found.rows[f"part {number}"]["gpu"] for number in range(6))
    log = (found.work / "gpu1.log").read_text()
    cores = len(os.sched_getaffinity(0))
    assert f"cores {max(1, cores // 2)} " in log
    assert str(found.work / "cache-gpu1") in log
    assert (found.work / "cache-gpu0/pytrtplugins/kernels").samefile(found.work / "cache-gpu1/pytrtplugins/kernels")


def test_another_process_goes_on_behind_the_row_in_which_one_ended(run, capsys):
    found = run("before\ncrash\nafter\n\nother\n", gpus=["0"])
    assert set(found.rows) == {"before", "after", "other"}
    assert "gpu 0: a process ended with code 9" in capsys.readouterr().out
    assert len(list(found.work.glob("record-*.json"))) == 2


def test_all_ends_in_time_and_a_later_run_goes_on(run, capsys):
    found = run("first\nfails\nlong\nlast\n", gpus=["0"], seconds=900)
    assert set(found.rows) == {"first", "fails"}
    again = run("first\nfails\nlast\n", gpus=["0", "1"])
    assert set(again.rows) == {"first", "fails", "last"}
    assert "2 rows in 1 groups, 1 were done before" in capsys.readouterr().out
    assert again.record["runs"] == 2


def test_a_lane_gets_the_kernels_that_another_has_chosen(tmp_path):
    caches = [lanes._cache(tmp_path, gpu) for gpu in ("0", "1", "2")]
    for number, cache in enumerate(caches[:2]):
        (cache / "tactics").mkdir()
        text = encode({f"problem {number}": Choice("hopper", "64x64", 3.0)}, {"gpu": "NVIDIA H200"})
        (cache / "tactics" / "a.json").write_text(text)
    lanes._share_tactics(caches)
    texts = [(cache / "tactics" / "a.json").read_text() for cache in caches]
    assert texts[0] == texts[1] == texts[2]
    assert set(decode(texts[0])) == {"problem 0", "problem 1"}
