"""Lists of rows, and how processes share them out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.rows import Claims, read_rows, row_of, write_rows
from tests.nested_pytest import nested_environment

GROUPS = [["zoo FP16, resnet18, batch-1", "zoo INT8, resnet18, batch-1"], ["pytrtplugins, FP8, batch-1"]]


def test_a_list_has_groups_between_empty_lines(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text(
        "# first\n\nzoo FP16, resnet18, batch-1\nzoo INT8, resnet18, batch-1\n\n\npytrtplugins, FP8, batch-1"
    )
    assert read_rows(path) == GROUPS
    write_rows(path, GROUPS)
    assert read_rows(path) == GROUPS
    path.write_text("a\n\nb\na\n")
    with pytest.raises(ValueError, match=r"rows\.txt: these rows stand there twice: a"):
        read_rows(path)


def test_a_row_is_called_what_stands_in_the_brackets_of_its_test():
    assert row_of("benchmarks/gpu/test_race.py::test_latency[darknet, TF32, batch-1]") == "darknet, TF32, batch-1"


def test_a_group_is_one_process_own_and_each_row_runs_once(tmp_path):
    first, second = (Claims(tmp_path, owner, GROUPS) for owner in ("gpu0", "gpu1"))
    assert first.take(GROUPS[0][0])
    assert not second.take(GROUPS[0][0])
    assert not second.take(GROUPS[0][1])  # of the same group
    assert second.take(GROUPS[1][0])
    assert first.left()  # the second row of its group
    assert not second.left()
    again = Claims(tmp_path, "gpu0", GROUPS)  # in the place of the first, which ended in its first row
    assert not again.take(GROUPS[0][0])
    assert again.take(GROUPS[0][1])
    assert not again.left()


CONFTEST = """
from benchmarks.gpu.conftest import (
    in_time, pytest_benchmark_update_json, pytest_collection_modifyitems, pytest_configure, pytest_runtest_protocol
)
"""
ROWS = """
import pytest

@pytest.mark.parametrize("number", range(4), ids="row {}".format)
def test_row(number, benchmark):
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(kind="race", number=number)
"""
PROGRAM = """
import pathlib, sys, pytest
from benchmarks.record import Record
code = pytest.main(["-p", "no:cacheprovider", "-q", "-W", "ignore", sys.argv[1]], [Record(pathlib.Path(sys.argv[2]))])
sys.exit(code)
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_rows.py").write_text(ROWS)
    claims = tmp_path / "claims"
    claims.mkdir()

    def run_(text, owner="gpu0", **more):
        (tmp_path / "rows.txt").write_text(text)
        given = {
            "BENCHMARK_ROWS": str(tmp_path / "rows.txt"),
            "BENCHMARK_CLAIMS": str(claims),
            "BENCHMARK_OWNER": owner,
        }
        path = tmp_path / f"{owner}.json"
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "test_rows.py"), str(path)]
        environment = nested_environment("pytest_benchmark.plugin", **given, **more)
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        record = json.loads(path.read_text()) if path.exists() else {"rows": [], "left_out": []}
        names = [row["row"] for row in record["rows"]]
        return names, record["left_out"], done

    return run_


def test_the_rows_of_a_list_run_in_its_order(run):
    assert run("row 3\n\nrow 0\nrow 1\n")[:2] == (["row 3", "row 0", "row 1"], [])


def test_what_another_process_runs_is_not_left_out(run, tmp_path):
    Claims(tmp_path / "claims", "gpu1", [["row 0", "row 1"], ["row 3"]]).take("row 0")
    assert run("row 0\nrow 1\n\nrow 3\n")[:2] == (["row 3"], [])


def test_a_row_that_is_not_there_is_named(run):
    names, _, done = run("row 3\nrow 4\n")
    assert names == []
    assert "rows.txt: there are no such rows: row 4" in done.stdout + done.stderr


def test_a_list_may_name_any_peer_of_the_zoo(monkeypatch):
    pytest.importorskip("torch")
    from benchmarks.gpu.test_zoo import peer_cases

    monkeypatch.delenv("BENCHMARK_ZOO_PEERS", raising=False)
    monkeypatch.delenv("BENCHMARK_ROWS", raising=False)
    assert peer_cases(("resnet18",)) == []
    monkeypatch.setenv("BENCHMARK_ROWS", str(Path("rows.txt")))
    names = [case.id for case in peer_cases(("resnet18",))]
    assert "zoo compile, resnet18, batch-32" in names
    assert "zoo onnxruntime, resnet18, batch-1" in names
