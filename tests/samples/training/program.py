"""A training program for torchrun and Ray, which dies where a test wants it: a toy network, a checkpoint after every step.

    torchrun ... -m tests.samples.training.program FOLDER DEATH [RANK ...]

DEATH is ``step`` or ``checkpoint``: the ranks that are listed send themselves SIGKILL in that part of step 3, in the first attempt.
DEATH is ``node``, and the list has a node of Ray: its rank waits in step 3 until somebody kills the node.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
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
    def __init__(self, end: Callable[[], object] | None) -> None:
        super().__init__()
        self._end = end

    def inputs(self, batch: Any, step: int) -> tuple[int, tuple[torch.Tensor, ...]]:
        if self._end and step == FATAL_STEP:
            self._end()
        return super().inputs(batch, step)


def place(death: str) -> str:
    """What the list of the doomed names: a rank, or a node of Ray."""
    if death != "node":
        return os.environ["RANK"]
    import ray

    return ray.get_runtime_context().get_node_id()


def main(arguments: Sequence[str], signals: Sequence[int] = ()) -> int:
    folder, death, *doomed = arguments
    torch.set_num_threads(1)
    ranks = join("cpu", Settings())
    checkpoints = checkpoint.Checkpoints(Path(folder) / "checkpoints", ranks)
    found = checkpoints.newest()
    dies = place(death) in doomed and not is_restarted() and found is None

    def wait_for_death() -> None:
        (Path(folder) / "waits").touch()
        threading.Event().wait()

    ends = {"step": die, "node": wait_for_death}.get(death) if dies else None
    task = Mortal(ends)
    loop = make(ranks, ADAM, task=task, variable_update="distributed_replicated", deterministic=True)
    if found is not None:
        loop.resume(checkpoints, *found)
    if dies and death == "checkpoint":
        whole = checkpoint.Writer.finish

        def half(self: Any, **given: Any) -> None:
            if loop.step == FATAL_STEP:
                die()
            whole(self, **given)

        checkpoint.Writer.finish = half

    def save() -> None:
        loop.save(checkpoints, {})
        checkpoints.wait()

    loop.run(seconds=600, look=save, save=save, signals=signals)
    assert loop.step == STEPS
    learnt = state(loop)
    if ranks.is_first:
        torch.save({"state": learnt, "began": 0 if found is None else found[1]["step"]}, Path(folder) / "end.pt")
    ranks.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
