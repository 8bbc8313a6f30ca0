"""Ranks that are killed by SIGKILL, in a step and in a checkpoint: the run continues, and ends with the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.needs_torch import torch

ROOT = Path(__file__).parents[3]
SURROUNDINGS = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "samples")]),
    "OMP_NUM_THREADS": "1",
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def train(folder: Path, *death: str, restarts: int = 0) -> tuple[bool, str]:
    """Run two ranks under torchrun; whether they came to the end, and what they said."""
    options = ["--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}", "--monitor-interval=0.1"]
    program = ["-m", "tests.samples.training.program", str(folder), *(death or ("step",))]
    line = [sys.executable, "-m", "torch.distributed.run", *options, *program]
    found = subprocess.run(line, env=SURROUNDINGS, cwd=ROOT, capture_output=True, text=True, timeout=240)
    return found.returncode == 0, found.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The end of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    done, said = train(folder)
    assert done, said
    return end_of(folder)["state"]


def end_of(folder: Path) -> dict:
    return torch.load(folder / "end.pt", weights_only=True)


def check_same(folder: Path, whole: dict, began: int) -> None:
    end = end_of(folder)
    assert end["began"] == began
    assert all(torch.equal(end["state"][name], tensor) for name, tensor in whole.items())


def test_a_rank_that_dies_in_a_step_is_started_again(tmp_path, whole):
    done, said = train(tmp_path, "step", "1", restarts=1)
    assert done, said
    check_same(tmp_path, whole, began=3)


def test_all_ranks_that_die_in_a_step_lose_only_that_step(tmp_path, whole):
    done, said = train(tmp_path, "step", "0", "1")
    assert not done
    assert "Signal 9" in said
    done, said = train(tmp_path)
    assert done, said
    check_same(tmp_path, whole, began=3)


def test_a_checkpoint_during_which_a_rank_dies_is_no_checkpoint(tmp_path, whole):
    done, _ = train(tmp_path, "checkpoint", "0")
    assert not done
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == [".step-000000003.part", "step-000000001", "step-000000002"]
    done, said = train(tmp_path)
    assert done, said
    check_same(tmp_path, whole, began=2)
    assert not list((tmp_path / "checkpoints").glob(".*"))
