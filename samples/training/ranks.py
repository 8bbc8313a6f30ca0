"""The processes of a run: their ranks, how they start, and reductions over all ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, distributed

from pytrtplugins.errors import ExecutionError, UsageError

from .settings import Settings

__all__ = ["GO_ON", "Job", "Ranks", "device_of", "exchange", "is_launched", "is_restarted", "join", "launch"]

GO_ON = "mend what it names, if anything; then run the same command with --resume, which continues from the last good checkpoint"
"""What to do when a rank failed."""
_ALGORITHMS = {"nccl/ring": "Ring", "nccl/tree": "Tree"}


@dataclass(frozen=True)
class Ranks:
    """This process's rank in a run.

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

    def max_over_ranks(self, values: Sequence[float]) -> list[float]:
        """The largest of all ranks' values, one by one; all ranks must ask."""
        if not self.joined:
            return list(values)
        largest = torch.tensor(values, dtype=torch.float64, device=self.device)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        return largest.tolist()

    def per_rank(self, count: Tensor) -> Tensor:
        """This rank's part of the count of all ranks, which is 1 at least; all ranks must ask.

        If each rank divides the sum of its losses by it, the mean over ranks is the loss of the whole batch.
        """
        if not self.joined:
            return count.clamp(min=1)
        total = count.detach().clone()
        distributed.all_reduce(total)
        return total.clamp(min=1) / self.world

    def mean(self, values: Tensor) -> Tensor:
        """The means over all ranks, one by one; all ranks must ask."""
        if not self.joined:
            return values
        total = values.detach().clone()
        distributed.all_reduce(total)
        return total / self.world

    def leave(self) -> None:
        """End the process group."""
        if self.joined:
            distributed.destroy_process_group()


@dataclass(frozen=True)
class Job:
    """A program for several ranks, and their number.

    Fields:
        program: Path of a script whose ``main(arguments, signals)`` gives an exit status.
        arguments: Its options. The script, and the paths in its options, are the same on each machine.
        out: Folder of the run, which all machines share.
        device: ``cuda``: each rank gets a GPU; or ``cpu``.
        settings: How they compute.
        ranks: How many there are, on all machines together.
        cores: What Ray reserves for each of them.
        restarts: How often all of them start again after one, or its machine, died.
    """

    program: Path
    arguments: Sequence[str]
    out: Path
    device: str
    settings: Settings
    ranks: int
    cores: int = 1
    restarts: int = 0


def device_of(name: str, least: int = 1) -> torch.device:
    """The device of an option.

    Args:
        name: ``cpu``, ``cuda``, or ``cuda:1``.
        least: GPUs that the machine must have.

    Raises:
        UsageError: it is another device, or this machine lacks it.
    """
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (colon and not (kind == "cuda" and number.isascii() and number.isdigit())):
        raise UsageError(
            f"--device {name!r}: expected cpu, cuda, or the number of a GPU, as in cuda:1.\nDo: give one of them"
        )
    if kind == "cpu":
        return torch.device("cpu")
    count, least = torch.cuda.device_count(), max(least, int(number or 0) + 1)
    if count >= least:
        return torch.device(name)
    built = "this PyTorch is built for CPUs" if torch.version.cuda is None else f"PyTorch sees {count} here"
    cure = "give --device cpu" if not count else f"give --gpus {count} or fewer, or a smaller number"
    raise UsageError(
        f"--device {name}: it needs {least} GPU{'s' * (least > 1)} with CUDA; {built}.\nDo: {cure}; or look at nvidia-smi"
    )


def is_launched() -> bool:
    """Whether torchrun or Ray Train started this process as one of several ranks."""
    return distributed.is_torchelastic_launched() or distributed.is_initialized()


def is_restarted() -> bool:
    """Whether torchrun restarted the ranks after one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def exchange(settings: Settings, device: str) -> tuple[str, dict[str, str]]:
    """The backend of a process group on this kind of device, and the environment variables that it reads when it is made."""
    if device == "cpu":
        return "gloo", {}
    spec = settings.all_reduce_spec
    algorithm = {"NCCL_ALGO": _ALGORITHMS[spec]} if spec in _ALGORITHMS else {}
    return f"cpu:gloo,cuda:{'gloo' if spec == 'gloo' else 'nccl'}", algorithm


def join(device: str, settings: Settings) -> Ranks:
    """Join the ranks that torchrun or Ray Train started; alone, where neither started this process.

    Raises:
        UsageError: the settings cannot work with this device, or with so many ranks; or the machine lacks the device.
    """
    joined = is_launched()
    rank, world, number = (
        int(os.environ.get(name, default)) if joined else default
        for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    )
    settings.check(device.partition(":")[0], world, joined=joined)
    # a GPU without a number would be refused by set_device, and unequal to the devices of its tensors
    place = device_of(f"cuda:{number}" if device == "cuda" else device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if joined and not distributed.is_initialized():
        backend, variables = exchange(settings, place.type)
        os.environ.update(variables)
        # torchrun keeps its store when it starts ranks again; without a prefix they would find the addresses of those that died
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = distributed.PrefixStore(f"attempt-{attempt}", next(distributed.rendezvous("env://"))[0])
        distributed.init_process_group(backend, store=store, rank=rank, world_size=world)
    return Ranks(rank, world, place, joined)


def launch(job: Job) -> None:
    """Run a job in processes of this machine, as ``torchrun --standalone`` does, and wait for them.

    Raises:
        ExecutionError: a rank failed more often than ``restarts``.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # with an address, the machine's own name need not be known to it
    options = [
        "--standalone",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={job.ranks}",
        f"--max-restarts={job.restarts}",
    ]
    try:
        run.main([*options, str(job.program), *job.arguments])
    except SignalException:
        return  # the ranks got it too, and said where they stopped
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        how = f"by signal {-failure.exitcode}" if failure.exitcode < 0 else f"with status {failure.exitcode}"
        raise ExecutionError(
            f"rank {rank} ended {how}; what it said is above.\nDo: {GO_ON}",
            rank=rank,
        ) from None
