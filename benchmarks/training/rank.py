"""One rank of the benchmark of modes: it trains in each way that its job names, and rank 0 writes what that gave.

``python -m benchmarks.training.rank FOLDER``, started by a `Group`.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.utils.atomic import write_atomic

from . import subject
from .group import JOB, finding
from .peers import PEERS


def main(folder: Path) -> int:
    """Do the tasks of a job, in their order; the exit status."""
    import torch

    from training.ranks import join
    from training.settings import Settings

    job = json.loads((folder / JOB).read_text())
    ranks = join(job["device"], Settings())
    torch.backends.cudnn.benchmark = True
    for number, task in enumerate(job["tasks"]):
        (late,) = ranks.agree([time.time() > job["until"]])
        try:
            found = {"late": True} if late else _find(job, task, ranks)
        except PytrtpluginsError as error:  # a package is missing, to all ranks
            found = {"reason": str(error).splitlines()[0]}
        if ranks.is_first:
            write_atomic(finding(folder, number), json.dumps(found).encode())
        if late:
            break
    ranks.leave()
    return 0


def _find(job: dict[str, Any], task: dict[str, Any], ranks: Any) -> dict[str, Any]:
    """The first losses of a way to train, how far the ranks' weights are apart then, and how fast it is."""
    import torch

    cuda, peer = ranks.device.type == "cuda", PEERS.get(task["peer"])
    torch._dynamo.reset()  # it compiles a function only so many times
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    settings = task["settings"] | ({"variable_update": "independent"} if peer else {})
    shared = task["settings"].get("variable_update") != "independent"
    loop = subject.make_loop(
        task["network"], job["batch"], [job["input"]], ranks, shared=shared and ranks.joined, **settings
    )
    torch._dynamo.config.suppress_errors = False  # what does not compile must not be timed as compiled
    advance = loop.advance if peer is None else peer(loop, settings["precision"])
    found = {"losses": subject.first_losses(loop, advance), "spread": _spread(loop, ranks)}
    if not job["seconds"]:  # it was to be compiled only
        return found
    steps, seconds = subject.timed(advance, subject.wait_for(ranks.device), job["seconds"], ranks)
    loop.check()
    (seconds,) = ranks.agree([seconds])
    return found | {
        "rate": steps * job["batch"] * ranks.world / seconds,
        "step_ms": 1e3 * seconds / steps,
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9 if cuda else 0.0,
    }


def _spread(loop: Any, ranks: Any) -> float:
    """How far the ranks' weights are apart: the largest difference of the sums of a tensor's sizes, relative to the sum."""
    from training.schedule import full

    sums = [full(tensor.detach()).double().abs().sum().item() for tensor in loop.task.network.parameters()]
    highest, lowest = ranks.agree(sums), ranks.agree([-each for each in sums])
    return max((high + low) / max(high, 1e-12) for high, low in zip(highest, lowest, strict=True))


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # with which a group asks where a rank is that takes too long
    try:
        status = main(Path(sys.argv[1]))
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # the end of a process group would wait for the other ranks
    sys.exit(status)
