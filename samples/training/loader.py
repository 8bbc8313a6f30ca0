"""Loaders: photos and boxes of each step on the device, in the sampler's order."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.numbers import check_int
from pytrtplugins.utils.prefetch import threads_for_files

from .batch import Batch, Pool
from .clock import Clock
from .photos import Photos, Records
from .sampler import StepSampler

__all__ = ["KINDS", "Loader", "Options", "make_loader"]

KINDS = ("resident", "spdl-cpu", "spdl-gpu", "dataloader")
"""All photos on the device from the start; decoded by the CPU, or by the GPU, beside the steps; PyTorch's DataLoader."""


@dataclass(frozen=True)
class Options:
    """Options of a loader, which do not change its batches, except for ``boxes``.

    Fields:
        readers: Threads that read.
        decoders: Threads that decode; 0: one for each core that this process may use, beside steps 8 at most.
        workers: Processes of the DataLoader; 0: the process of the steps decodes.
        ahead: Batches that are in work or ready, together, at most.
        boxes: Boxes of a photo that are kept, the largest.
        decoder: What decodes on a GPU: "torchvision", "nvimgcodec", "auto": the first that is installed; or an object with
            its method ``decode``.
    """

    readers: int = 8
    decoders: int = 0
    workers: int = 0
    ahead: int = 6
    boxes: int = 100
    decoder: Any = "auto"

    def __post_init__(self) -> None:
        for name, least, most in (
            ("readers", 1, 1024),
            ("decoders", 0, 1024),
            ("workers", 0, 1024),
            ("ahead", 1, 1024),
            ("boxes", 1, 100_000),
        ):
            check_int(name, getattr(self, name), least, most)

    def decoding_threads(self, most: int = 1024) -> int:
        """The number of decoding threads; at most this default if the user gave none."""
        return self.decoders or min(threads_for_files(), most)


class Loader(ABC):
    """Iterator over the batches of the steps from ``start`` to ``stop``.

    A loader is closed at its end, at the first error, when its context is left, and when the main thread ends.

    Args:
        photos: The set, and which of its photos a step gets.
        device: Where batches go.
        start: The first step.
        stop: Behind the last step.
        clock: Where the work of the stages is counted.
        options: How it works.
    """

    pool: Pool | None = None
    """All photos, where they are on the device."""
    notes: tuple[str, ...] = ()
    """Advice for the user: what would make it faster."""

    def __init__(
        self, photos: Photos, device: torch.device, start: int, stop: int, clock: Clock, options: Options
    ) -> None:
        self.photos, self.device, self.clock, self.options = photos, device, clock, options
        self.step = check_int("first step", start, 0, 1 << 40)
        self.stop = check_int("last step", stop, start, 1 << 40)
        self.closed = threading.Event()
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Start the loader's threads, and register its stages at the clock."""

    def next(self) -> Batch:
        """The next step's batch, for the current stream of the device.

        Raises:
            StopIteration: There are no more steps, or the loader was closed.
            ImageError: A photo does not decode; ``.key`` says which.
            PytrtpluginsError: What else a stage raised, at its step's turn.
        """
        if self.step >= self.stop or self.closed.is_set():
            self.close()
            raise StopIteration
        try:
            with self.clock.waiting(self.device):
                batch = self._take(self.step)
        except BaseException:  # KeyboardInterrupt too: threads end with the run
            self.close()
            raise
        self.step += 1
        return batch

    @abstractmethod
    def _take(self, step: int) -> Batch:
        """The batch of a step; steps come in their order."""

    def close(self) -> None:
        """End all threads and processes. It may be called twice, and from any thread."""
        self.closed.set()

    @property
    def skipped(self) -> dict[int, str]:
        """Photos that did not decode and were replaced: their numbers in the set, and the reasons."""
        return self.photos.skipped

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self.next()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def make_loader(
    kind: str,
    data: Records,
    sampler: StepSampler,
    device: torch.device,
    *,
    size: int,
    start: int = 0,
    stop: int,
    skip_bad: bool = False,
    clock: Clock | None = None,
    options: Options | None = None,
) -> Loader:
    """Make a loader, which begins to work at once.

    Args:
        kind: One of `KINDS`; each gives the same batches, but for the last bits of pixels that another decoder gives.
        data: The set.
        sampler: Which photos a step gets.
        device: Where batches go.
        size: Width and height of the square in whose upper left corner each photo is stored; larger photos are shrunk.
        start: The first step.
        stop: Behind the last step.
        skip_bad: Replace a photo that does not decode by the next one of the same epoch.
        clock: Where the work of the stages is counted.
        options: How it works.

    Raises:
        UsageError: There is no such kind, or a number is outside its limits.
        MissingExtraError: A package of this kind is not installed.
    """
    if kind not in KINDS:
        raise UsageError(f"loader {kind!r} is unknown.\nDo: choose one of {', '.join(KINDS)}")
    side = check_int("size of stored photos", size, 8, 16384)
    photos = Photos(data, sampler, side, skip_bad=skip_bad)
    return _class_of(kind)(photos, device, start, stop, clock or Clock(), options or Options())


def _class_of(kind: str) -> type[Loader]:
    """A kind's packages are imported when it is made."""
    if kind == "resident":
        from .resident import Resident

        return Resident
    if kind == "dataloader":
        from .dataloader import TorchLoader

        return TorchLoader
    from .optional.stream import GpuStagedLoader, StagedLoader

    return GpuStagedLoader if kind == "spdl-gpu" else StagedLoader
