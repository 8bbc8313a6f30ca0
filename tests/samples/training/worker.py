"""One rank of the tests of several: runs every mode, and writes how far it is from one process.

python -m tests.samples.training.worker RANK WORLD FOLDER [WORLD_OF_CHECKPOINTS]
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from tests.samples.training.toy import ADAM, SGD, STEPS, advance, difference, make, state
from training.checkpoint import Checkpoints
from training.ranks import Ranks

MODES = {
    "replicated": {},
    "parameter_server": {},
    "distributed_replicated": {},
    "accumulated": {"variable_update": "replicated", "accumulate": 2},
    "sharded accumulated": {"variable_update": "parameter_server", "accumulate": 2},
    "staged": {"variable_update": "replicated", "staged_vars": True},
    "staged and sharded": {"variable_update": "distributed_replicated", "staged_vars": True},
    "staged accumulated": {"variable_update": "replicated", "staged_vars": True, "accumulate": 2},
    "compact": {"variable_update": "replicated", "compact_gradient_transfer": True},
    "independent": {},
}
OPTIMIZERS = {"sgd": SGD, "adam": ADAM}


def delayed(optimizer: Any) -> dict[str, torch.Tensor]:
    """One process, written by hand: each update has the gradients of the step before, the first has zeros."""
    loop = make(optimizer=optimizer)
    kept = [torch.zeros_like(p) for p in loop.task.module.parameters()]
    update = loop.precision.update

    def late(*rest: Any) -> torch.Tensor:
        nonlocal kept
        parameters = list(loop.task.module.parameters())
        new = [p.grad.clone() for p in parameters]
        for parameter, gradient in zip(parameters, kept, strict=True):
            parameter.grad = gradient
        kept = new
        return update(*rest)

    loop.precision.update = late
    return state(advance(loop, STEPS))


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    resumed = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    torch.set_num_threads(1)
    store = distributed.FileStore(str(folder / f"store-{world}"), world)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    ranks = Ranks(rank, world, torch.device("cpu"), True)
    found: dict[str, Any] = {}
    for name, optimizer in OPTIMIZERS.items():
        alone, late = state(advance(make(optimizer=optimizer), STEPS)), delayed(optimizer)
        ends = {}
        for mode, given in MODES.items():
            settings = {"variable_update": mode, "deterministic": True, **given}
            loop = make(ranks, optimizer, **settings)
            oracle = copy.deepcopy(late if "staged" in mode else alone)
            place = Checkpoints(folder / f"{name}-{mode}-{world}", ranks)
            advance(loop, 3)
            figures = loop.figures()
            if "staged" not in mode:
                rank_alone = advance(make(optimizer=optimizer), 3).figures()
                found[f"{name} {mode} figures"] = max(abs(a - b) for a, b in zip(figures, rank_alone, strict=True))
            found[f"{name} {mode} figures of ranks"] = (
                ranks.max_over_ranks([figures[0]])[0] + ranks.max_over_ranks([-figures[0]])[0]
            )
            loop.save(place, {})
            place.wait()
            ends[mode] = state(advance(loop, STEPS - 3))
            found[f"{name} {mode}"] = difference(ends[mode], oracle)
            again = make(ranks, optimizer, **settings)
            again.resume(place, *place.newest())
            found[f"{name} {mode} resumed"] = difference(state(advance(again, STEPS - 3)), ends[mode])
            if resumed:
                other = make(ranks, optimizer, **settings)
                theirs = Checkpoints(folder / f"{name}-{mode}-{resumed}", ranks)
                other.resume(theirs, *theirs.newest())
                found[f"{name} {mode} of {resumed} ranks"] = difference(state(advance(other, STEPS - 3)), oracle)
        found[f"{name} replicated and distributed_replicated"] = difference(
            ends["replicated"], ends["distributed_replicated"]
        )
    found["per rank"] = float(ranks.per_rank(torch.tensor(rank + 1.0)) - (world + 1) / 2)
    found["per rank, few"] = float(ranks.per_rank(torch.tensor(0.1)) - 1 / world)
    worst = {key: ranks.max_over_ranks([value])[0] for key, value in found.items()}
    if rank == 0:
        (folder / f"found-{world}.json").write_text(json.dumps(worst, indent=1))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
