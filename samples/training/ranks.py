"""The processes of a run: who they are, how they start, and what they agree on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import distributed

from pytrtplugins.errors import ExecutionError

from .settings import Settings

__all__ = ["Ranks", "is_launched", "is_restarted", "join", "launch"]

_ALGORITHMS = {"nccl/ring": "Ring", "nccl/tree": "Tree"}


@dataclass(frozen=True)
class Ranks:
    """This process among those of a run.

    Fields:
        rank: Its number.
        world: How many there are.
        device: Its device.
        joined: Whether they have a process group; without one nothing is exchanged or wrapped.
    """

    rank: int
    world: int
    device: torch.device
    joined: bool

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that prints and writes."""
        return self.rank == 0

    def agree(self, values: Sequence[float]) -> list[float]:
        """The largest of all ranks' values, one by one; all ranks must ask."""
        if not self.joined:
            return list(values)
        largest = torch.tensor(values, dtype=torch.float64, device=self.device)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        return largest.tolist()

    def leave(self) -> None:
        """End the process group."""
        if self.joined:
            distributed.destroy_process_group()


def is_launched() -> bool:
    """Whether torchrun started this process."""
    return distributed.is_torchelastic_launched()


def is_restarted() -> bool:
    """Whether torchrun started the ranks again, after one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def join(device: str, settings: Settings) -> Ranks:
    """Join the ranks that torchrun started; alone, where it did not start this process.

    Raises:
        UsageError: the settings cannot work with this device, or with so many ranks.
    """
    joined = is_launched() or distributed.is_initialized()
    rank, world, number = (
        int(os.environ.get(name, default)) if joined else default
        for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    )
    settings.check(device.partition(":")[0], world, joined=joined)
    place = torch.device("cuda", number) if joined and device == "cuda" else torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if joined and not distributed.is_initialized():
        if settings.all_reduce_spec in _ALGORITHMS:
            os.environ["NCCL_ALGO"] = _ALGORITHMS[settings.all_reduce_spec]  # NCCL reads it when the group is made
        exchange = "gloo" if place.type == "cpu" or settings.all_reduce_spec == "gloo" else "nccl"
        backend = f"cpu:gloo,cuda:{exchange}" if place.type == "cuda" else "gloo"
        # torchrun keeps its store when it starts ranks again; without a prefix they would find the addresses of those that died
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = distributed.PrefixStore(f"attempt-{attempt}", next(distributed.rendezvous("env://"))[0])
        distributed.init_process_group(backend, store=store, rank=rank, world_size=world)
    return Ranks(rank, world, place, joined)


def launch(program: str, arguments: Sequence[str], ranks: int, restarts: int) -> None:
    """Run a program in several processes of this machine, as ``torchrun --standalone`` does, and wait for them.

    Args:
        program: Path of the script.
        arguments: Its options.
        ranks: Number of processes, each with a GPU of its own where there are GPUs.
        restarts: How often all processes are started again after one of them died.

    Raises:
        ExecutionError: a process failed more often.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    options = ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    try:
        run.main([*options, program, *arguments])
    except SignalException:
        return  # the ranks got it too, and said where they stopped
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        how = f"by signal {-failure.exitcode}" if failure.exitcode < 0 else f"with status {failure.exitcode}"
        raise ExecutionError(
            f"rank {rank} ended {how}; what it said is above.\n"
            "Do: mend what it names, if anything; then run the same command with --resume, which continues from the last good checkpoint",
            rank=rank,
        ) from None
