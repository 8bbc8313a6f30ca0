"""PyTorch's DataLoader with the same photos in the same order, as a baseline for the other loaders."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset

from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.utils.override import override
from pytrtplugins.utils.prefetch import threads_for_files

from .batch import Batch
from .loader import Loader
from .photos import Photos
from .staging import Copies, Slot

__all__ = ["TorchLoader", "advice"]

_AHEAD = 2  # batches of each worker process
_START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
"""How worker processes begin.

One that is forked from this process could wait for ever for a lock that a thread held then. One that is spawned ends Python's
interpreter while PyTorch's threads run, and may abort.
"""
_IMPORTED = ["torch"]  # by the server before it forks: all worker processes share that memory
_SHARED = "/dev/shm"  # where batches go from the worker processes to this one


@dataclass
class _Host:
    """A step's batch on the host.

    Fields:
        slot: The batch.
        error: What ended it instead.
        process: Which process made it.
        spans: Stages with their begin and end, on the machine's clock.
        skipped: Photos that did not decode, as this process knows them.
    """

    slot: Slot
    error: PytrtpluginsError | None
    process: str
    spans: list[tuple[str, float, float]]
    skipped: dict[int, str]

    def pin_memory(self) -> _Host:
        """Called by the DataLoader in its pinning thread."""
        self.slot.pin()
        return self


class _Steps(Dataset):
    """Dataset of steps: each batch is made on demand, in a worker process or in this one."""

    def __init__(self, photos: Photos, most: int) -> None:
        self._photos, self._most = photos, most

    def __getitem__(self, step: int) -> _Host:
        photos, spans = self._photos, []
        count = photos.sampler.share
        slot, error = Slot(count, photos.side, self._most), None
        memory = slot.rows()
        try:
            begin = time.perf_counter()
            records = [photos.data.read(number) for number in photos.numbers(step)]
            between = time.perf_counter()
            for row, record in enumerate(records):
                good, pixels = photos.decode(step, row, record)
                memory.put(row, good.key, pixels, good.boxes)
            spans = [("read", begin, between), ("decode", between, time.perf_counter())]
        except PytrtpluginsError as caught:  # the DataLoader would make text of it
            error = caught
        return _Host(slot, error, f"process {os.getpid()}", spans, dict(photos.skipped))


class TorchLoader(Loader):
    """Loader on PyTorch's DataLoader: each worker process makes whole batches. See `Loader`."""

    @override
    def _open(self) -> None:
        pinned, workers, photos = self.device.type == "cuda", self.options.workers, self.photos
        for stage in ("read", "decode"):
            self.clock.declare(stage, max(1, workers))
        self.clock.declare("staging")
        self.notes = advice(workers, pinned, batch_bytes=3 * photos.side**2 * photos.sampler.share)
        self._copies = Copies(self.device)
        context = multiprocessing.get_context(_START)
        context.set_forkserver_preload(_IMPORTED)
        loader = DataLoader(
            _Steps(photos, self.options.boxes),
            batch_size=None,
            sampler=range(self.step, self.stop),
            num_workers=workers,
            multiprocessing_context=context if workers else None,
            collate_fn=_same,
            pin_memory=pinned,
            prefetch_factor=_AHEAD if workers else None,
        )
        self._batches: Any = iter(loader)

    @override
    def _take(self, step: int) -> Batch:
        host: _Host = next(self._batches)
        for stage, begin, end in host.spans:
            share = self.photos.sampler.share
            self.clock.add(stage, begin - self.clock.zero, end - self.clock.zero, share, host.process)
        self.photos.skipped.update(host.skipped)
        if host.error is not None:
            raise host.error
        with self.clock.stage("staging", self.photos.sampler.share):
            return self._copies.send(step, host.slot, wait=False).arrive()  # nobody fills this slot again

    def close(self) -> None:
        """End the worker processes."""
        if not self.closed.is_set():
            super().close()
            if shut_down := getattr(self._batches, "_shutdown_workers", None):
                shut_down()
            self._batches = iter(())


def _same(host: _Host) -> _Host:
    return host


def advice(workers: int, pinned: bool, *, batch_bytes: int) -> tuple[str, ...]:
    """Advice for making PyTorch's DataLoader faster, or keeping it from failing, on this machine."""
    cores, lines = threads_for_files(), []
    if not workers:
        lines.append(f"num_workers=0: each step waits until its photos are decoded. Do: --workers {max(1, cores - 1)}")
    elif workers > cores:
        lines.append(f"num_workers={workers}: there are {cores} cores. Do: --workers {max(1, cores - 1)}")
    if not pinned:
        lines.append("pin_memory is off: the device is no GPU")
    needed = workers * _AHEAD * batch_bytes
    if workers and os.path.isdir(_SHARED) and (free := shutil.disk_usage(_SHARED).free) < needed:
        lines.append(
            f"{_SHARED} has {free / 1e6:,.0f} MB free, and the batches of {workers} processes need {needed / 1e6:,.0f} MB. "
            "Do: fewer workers, or more shared memory (docker run --shm-size)"
        )
    return tuple(lines)
