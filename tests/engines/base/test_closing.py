"""Closing, nesting and forking: an error or an end, never a thread that waits for ever; the cases are in `closing` and `forking`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.base import closing

ROOT = Path(__file__).parents[3]
LONGEST = 120
CASES = list(closing.cases())
FOUND: dict[str, dict[str, str]] = {}


def outcomes(engine_name: str) -> dict[str, str]:
    """How each case ended: empty, or its traceback. What comes after one that hangs is missing."""
    if engine_name not in FOUND:
        command = [sys.executable, "-m", "tests.engines.base.closing", engine_name]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                text, _ = process.communicate(timeout=LONGEST)
            except subprocess.TimeoutExpired:
                process.kill()
                text, _ = process.communicate()
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        FOUND[engine_name] = {line["case"]: line["failure"] for line in lines}
    return FOUND[engine_name]


@pytest.mark.parametrize("case", CASES)
def test_case(engine_name, case):
    if "fork" in case and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    found = outcomes(engine_name)
    assert case in found, f"it did not end within {LONGEST} seconds, or one before it did not"
    assert found[case] == ""


def test_there_are_cases():
    assert len(CASES) >= 12
