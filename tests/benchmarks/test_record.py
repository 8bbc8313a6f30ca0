"""The record of rows, of which one is cut off."""

import json
import subprocess
import sys

from tests.nested_pytest import nested_environment

ROWS = """
import os, pathlib, pytest
import numpy as np

@pytest.mark.parametrize("each", [pathlib.Path("a")], ids=str)
def test_first(each, benchmark):
    benchmark.pedantic(lambda: None, rounds=3)
    benchmark.extra_info.update(kind="whole", error=np.float32(0.5))

def test_fails(benchmark):
    benchmark.pedantic(lambda: None, rounds=3)
    pytest.fail("other numbers")

def test_kills(benchmark):
    def row():
        os._exit(9)
    benchmark.pedantic(row, rounds=3)
"""
PROGRAM = """
import pathlib, sys, pytest
from benchmarks.record import Record
pytest.main(["-p", "no:cacheprovider", "-q", sys.argv[1]], [Record(pathlib.Path(sys.argv[2]), {"date": "2026-11-30"})])
"""


def test_finished_rows_are_there_whatever_ends_the_run(tmp_path):
    rows, path = tmp_path / "test_rows.py", tmp_path / "record.json"
    rows.write_text(ROWS)
    environment = nested_environment("pytest_benchmark.plugin")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(rows), str(path)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 9, done.stdout
    record = json.loads(path.read_text())
    assert [row["row"] for row in record["rows"]] == ["a"]
    assert record["date"] == "2026-11-30"
    (row,) = record["rows"]
    assert (row["kind"], row["error"]) == ("whole", 0.5)
    assert 0 < row["host_least_us"] <= row["host_us"]
