"""CUDA graphs of a step: draw, forward and backward are replayed, and give what they give one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.samples.needs_torch import torch
from tests.samples.rectangles import SMALL, draw_set, make_loop
from training.curve import read_log
from yolov2_training.recipe import Recipe

ROOT = Path(__file__).parents[3]
TINY = ["--stages", "4,4,8,8,8,8", "--head", "8", "--passthrough", "4"]

pytestmark = pytest.mark.gpu


@pytest.fixture
def device():
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return torch.device("cuda", 0)


@pytest.mark.parametrize("loader", ["resident", "dataloader"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_replayed_steps_learn_what_launched_ones_learn(tmp_path: Path, device, loader, accumulate) -> None:
    """Of two sizes, before and after mosaics stop: each size is captured once."""
    folder = draw_set(tmp_path / "set")
    recipe = Recipe(steps=8, batch=4, sizes=(64, 96), close=0.5, dropout=0.3, **SMALL)
    found = []
    for graphs in (False, True):
        loop = make_loop(folder, recipe, device=device, loader=loader, accumulate=accumulate, cuda_graphs=graphs)
        losses = []
        for _ in range(recipe.steps):
            loop.advance()
            losses.append(loop.last[:-1])
        found.append(torch.stack(losses))
    assert len(loop._compute._captured) == 2
    torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-3)
    assert found[0].isfinite().all()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_two_ranks_that_replay_learn_what_launched_ones_learn(tmp_path: Path, killed) -> None:
    """Of two sizes; the program ends by itself; and goes on after one of its ranks was killed."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    folder = draw_set(tmp_path / "set")
    line = [sys.executable, "samples/train_yolov2.py", "--data", str(folder), "--gpus", "2", "--no-compile"]
    line += ["--steps", "60", "--batch", "4", "--sizes", "64,96", "--save-every", "1", "--restarts", "1", *TINY]
    found = {}
    for graphs in ([], ["--cuda_graphs"]):
        out = tmp_path / f"run{len(graphs)}"
        process = subprocess.Popen([*line, "--output", str(out), *graphs], cwd=ROOT, start_new_session=True)
        try:
            if killed and graphs:
                _kill_a_rank(process, out)
            assert process.wait(240) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        found[bool(graphs)] = [float(row["box"]) for row in read_log(out / "log.csv")]
    assert found[True][-1] == pytest.approx(found[False][-1], rel=0.05)


def _kill_a_rank(process: subprocess.Popen, out: Path) -> None:
    """Kill the second rank as soon as there is a checkpoint to continue from."""
    end = time.monotonic() + 200
    while not list((out / "checkpoints").glob("step-*")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # processes of others, and those that have ended
            named, given = ((folder / name).read_bytes().split(b"\0") for name in ("environ", "cmdline"))
            if b"RANK=1" in named and str(out).encode() in given:
                os.kill(int(folder.name), signal.SIGKILL)
                return
    raise AssertionError("there is no second rank")
