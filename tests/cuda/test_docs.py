"""The programs of docs/cuda.md run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytrtplugins.cuda import gpu_reason

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", GUIDE, re.DOTALL)
CUDA, PYTHON, ERROR = (next(text for kind, text in BLOCKS if kind == wanted) for wanted in ("cuda", "python", ""))


@pytest.fixture
def run(tmp_path):
    def run(cuda, program):
        (tmp_path / "shuffle.cu").write_text(cuda)
        (tmp_path / "layer.py").write_text(program)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        return subprocess.run(
            [sys.executable, tmp_path / "layer.py"],
            capture_output=True,
            text=True,
            cwd="/",
            env=environment,
            check=False,
        )

    return run


SHOW = 'print(ptp.check_plugin(ChannelShuffle, engines=["cpu"]))\n'


def test_a_layer_with_a_kernel_passes_its_check(host, run):
    done = run(CUDA, PYTHON + SHOW)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  enqueue +ok ", done.stdout, re.MULTILINE), done.stdout


def test_a_kernel_that_computes_something_else_fails_the_check(host, run):
    done = run(CUDA.replace("area + pixel];", "area + pixel] + T(1);"), PYTHON)
    assert done.returncode != 0
    assert "ConformanceError" in done.stderr
    assert "elements differ" in done.stderr


def test_a_compile_error_is_shown_as_the_guide_shows_it(host, run):
    done = run(CUDA.replace("source) *", "sourc) *"), PYTHON)
    assert done.returncode != 0
    first, _, line = ERROR.splitlines()
    assert first.partition(" (")[0] in done.stderr
    assert re.search(r"shuffle.cu:8: .*sourc.*\n\s*" + re.escape(line.strip()), done.stderr)


@pytest.mark.gpu
def test_the_check_runs_the_kernel_on_the_gpu(run):
    if reason := gpu_reason():
        pytest.skip(reason.partition("\n")[0])
    done = run(CUDA, PYTHON + SHOW)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  enqueue on the GPU +ok ", done.stdout, re.MULTILINE), done.stdout
