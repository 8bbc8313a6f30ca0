"""The tests of `fused.py`, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.needs_torch import torch

pytest.importorskip("triton", reason="joined layers need Triton (pip install triton)")

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("interpreted", ["1", pytest.param("0", marks=pytest.mark.gpu)])
def test_joined_layers_compute_what_separate_ones_compute(interpreted) -> None:
    """In Triton's interpreter, and compiled for a GPU."""
    if interpreted == "0" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:benchmark",
        "-n",
        "0",
        "tests/samples/fused.py",
    ]
    environment = os.environ | {"TRITON_INTERPRET": interpreted}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
