"""The command, on a small package with tests of its own."""

import json
import re
import subprocess
import sys

import pytest

from tests.mutation.__main__ import EQUIVALENT, Trial, compared, known_equivalent, table
from tests.mutation.operators import mutants
from tests.mutation.trees import ROOT
from tests.nested_pytest import nested_environment

SOURCE = """\
def clip(x):
    if x < 0:
        return 0
    if x > 9:
        return 9
    return x
"""
TESTS = """\
import subprocess, sys
from pytrtplugins.little import clip


def test_high():
    assert clip(10) == 9
    assert clip(9) == 9


def test_child():
    child = [sys.executable, "-c", "from pytrtplugins.little import clip; assert clip(5) == 5 and clip(12) == 9"]
    assert subprocess.run(child).returncode == 0


def test_broken():
    raise ValueError
"""
LOW = """

def test_low():
    assert clip(-2) == 0
"""
SAME = """
[[equivalent]]
path = "pytrtplugins/little.py"
change = "if x < 0: → if x <= 0:"
why = "0 either way"
"""


@pytest.fixture
def mutation(tmp_path):
    """Run the command on a checkout with one module; gives what is printed and the outcomes."""
    for folder in ("pytrtplugins", "darknet2caffe", "tests/mutation"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("__main__", "covering", "operators", "sampling", "source", "trees"):
        text = re.sub(
            r"LIBRARIES = \(.*?\)", "LIBRARIES = ()", (ROOT / f"tests/mutation/{name}.py").read_text(), flags=re.S
        )
        (tmp_path / f"tests/mutation/{name}.py").write_text(text)
    (tmp_path / "tests/mutation/equivalent.toml").write_text(SAME)
    (tmp_path / "pytrtplugins/little.py").write_text(SOURCE)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow']\n")
    (tmp_path / ".gitignore").write_text("build\n__pycache__\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)

    def run(tests, *words):
        (tmp_path / "tests/test_little.py").write_text(tests)
        command = [sys.executable, "-m", "tests.mutation", "--sample", "9", *words]
        environment = nested_environment("pytest_timeout", PYTHONPATH=str(tmp_path))
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "pytrtplugins/little.py").read_text() == SOURCE
        trials = json.loads((tmp_path / "build/mutation/report.json").read_text())["trials"]
        return done.stdout, {trial["change"]: (trial["outcome"], trial["note"]) for trial in trials}

    return run


def test_an_error_that_no_test_notices_is_reported(mutation):
    printed, outcomes = mutation(TESTS)
    high = "tests/test_little.py::test_high"
    assert outcomes == {
        "if x < 0: → if x <= 0:": ("equivalent", "0 either way"),
        "if x < 0: → if False:": ("survived", ""),
        "if x > 9: → if False:": ("caught", high),
        "if x > 9: → if x >= 9:": ("survived", ""),
    }
    assert "survived 2 tests: pytrtplugins/little.py:2: condition: if x < 0: → if False:" in printed
    assert "| little | 4 | 4 | 1 | 2 | 1 | 33 % |" in printed
    printed, outcomes = mutation(TESTS + LOW, "--again", "build/mutation/report.json")
    assert outcomes == {
        "if x < 0: → if False:": ("caught", "tests/test_little.py::test_low"),
        "if x > 9: → if x >= 9:": ("survived", ""),
    }
    assert "  survived → caught: pytrtplugins/little.py:2: if x < 0: → if False:" in printed


def trial(outcome, place="pytrtplugins/a.py:1", room="a"):
    return Trial(room, place, "boundary", "a < b → a <= b", outcome, 3)


def test_the_table_has_a_line_for_each_room():
    trials = [trial("caught"), trial("time"), trial("survived"), trial("unreliable"), trial("equivalent", room="b")]
    assert table(trials, {"a": 1234, "b": 6})[2:] == [
        "| a | 1,234 | 4 | 2 | 2 | 0 | 50 % |",
        "| b | 6 | 1 | 0 | 0 | 1 | – |",
        "| in all | 1,240 | 5 | 2 | 2 | 1 | 50 % |",
    ]


def test_reports_are_compared_though_lines_move():
    before = [vars(trial("survived", "pytrtplugins/a.py:9")), vars(trial("caught", "pytrtplugins/b.py:1"))]
    assert compared([trial("caught"), trial("caught", "pytrtplugins/b.py:2"), trial("caught", "c.py:1")], before) == [
        "  survived → caught: pytrtplugins/a.py:1: a < b → a <= b"
    ]


def test_what_is_listed_as_equivalent_is_an_error_of_today():
    changes = {}
    for path, change in known_equivalent():
        if path not in changes:
            data = (ROOT / path).read_bytes()
            changes[path] = {mutant.change(data) for mutant in mutants(path, data)}
        assert change in changes[path], f"{EQUIVALENT}: {path} has no such error: {change}"
