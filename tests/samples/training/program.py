"""A training program for torchrun, which kills itself where a test wants it: a toy network, a checkpoint after every step.

    torchrun ... -m tests.samples.training.program FOLDER DEATH [RANK ...]

DEATH is ``step`` or ``checkpoint``: the ranks that are listed send themselves SIGKILL in that part of step 3, in the first attempt.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from tests.samples.training.toy import ADAM, STEPS, Toy, make, state
from training import checkpoint
from training.ranks import is_restarted, join
from training.settings import Settings

FATAL_STEP = 3


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal(Toy):
    doomed = False

    def inputs(self, batch: Any, step: int) -> tuple[int, tuple[torch.Tensor, ...]]:
        if self.doomed and step == FATAL_STEP:
            die()
        return super().inputs(batch, step)


def main() -> None:
    folder, death, *doomed = sys.argv[1:]
    torch.set_num_threads(1)
    ranks = join("cpu", Settings())
    task, checkpoints = Mortal(), checkpoint.Checkpoints(Path(folder) / "checkpoints", ranks)
    loop = make(ranks, ADAM, task=task, variable_update="distributed_replicated", deterministic=True)
    found = checkpoints.newest()
    dies = str(ranks.rank) in doomed and not is_restarted() and found is None
    task.doomed = dies and death == "step"
    if found is not None:
        loop.resume(checkpoints, *found)
    if dies and death == "checkpoint":
        whole = checkpoint._Writer.finish

        def half(self: Any, **given: Any) -> None:
            if loop.step == FATAL_STEP:
                die()
            whole(self, **given)

        checkpoint._Writer.finish = half

    def save() -> None:
        loop.save(checkpoints, {})
        checkpoints.wait()

    loop.run(seconds=600, look=save, save=save)
    assert loop.step == STEPS
    ends = state(loop)
    if ranks.is_first:
        torch.save({"state": ends, "began": 0 if found is None else found[1]["step"]}, Path(folder) / "end.pt")
    ranks.leave()


if __name__ == "__main__":
    main()
