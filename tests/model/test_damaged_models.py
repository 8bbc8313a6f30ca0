"""Damaged models run with onnxruntime's numbers, or are refused with one of our errors, on every engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("openvino")

QUIET = (
    "-W",
    "ignore:This process:DeprecationWarning",
)  # from Python 3.12 on: forks where engines have threads are meant


def campaign(*words):
    """A campaign in a process of its own, whose forks have no threads of other tests to wait for."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, *QUIET, "-m", "tests.damaged_models", *words], cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_no_damaged_model_crashes_hangs_takes_all_memory_or_gives_wrong_numbers():
    outcomes, wrong = campaign("--count", "30", "--seed", "0")
    assert wrong == ""
    assert sum(outcomes.values()) == 90
    for engine in ("cpu", "onnxruntime", "reference"):
        assert outcomes[f"{engine}: ran"] >= 3  # not all damage matters
        assert outcomes[f"{engine}: ModelError"] >= 5


@pytest.mark.slow
def test_many_damaged_models_neither():
    _, wrong = campaign("--count", "600", "--seed", "100000")
    assert wrong == ""
