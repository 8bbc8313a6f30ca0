"""The loader that decodes each photo once, and keeps all of them on the device."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytrtplugins.errors import UnavailableError
from pytrtplugins.utils.override import override
from pytrtplugins.utils.prefetch import map_ahead

from .batch import Batch, as_pool
from .loader import Loader
from .photos import Pixels
from .staging import Copies, Slot

__all__ = ["Resident"]

_PART = 256  # photos that are copied at a time


class Resident(Loader):
    """Loader with all photos on the device from the start, in ``pool``. See `Loader`.

    Raises:
        UnavailableError: The device has too little memory for them.
    """

    @override
    def _open(self) -> None:
        count, side, clock = len(self.photos.data), self.photos.side, self.clock
        rows = count * (side**2 + (side // 2) ** 2)  # the augmentation writes copies of half the size behind the photos
        self._check_memory(3 * rows)
        clock.declare("read", self.options.decoding_threads())
        clock.declare("decode", self.options.decoding_threads())
        clock.declare("staging")
        storage = torch.empty((rows, 3), dtype=torch.uint8, device=self.device)
        self._all = self._load(storage[: count * side**2].view(count, side, side, 3))
        clock.lap()  # of loading, which is no part of any step
        photos = self._all
        self.pool = replace(as_pool(photos.pixels, photos.size, photos.boxes, photos.valid), storage=storage)

    def _check_memory(self, needed: int) -> None:
        if self.device.type != "cuda":
            return
        free, _ = torch.cuda.mem_get_info(self.device)
        if needed > 0.9 * free:
            raise UnavailableError(
                f"all {len(self.photos.data):,} photos at {self.photos.side} pixels need {needed / 1e9:.1f} GB; "
                f"{self.device} has {free / 1e9:.1f} GB left.\nDo: give --loader spdl-gpu or spdl-cpu, or a smaller size",
                needed=needed,
                free=free,
            )

    def _load(self, pixels: Tensor) -> Batch:
        count, side, most = *pixels.shape[:2], self.options.boxes
        copies, slot = Copies(self.device), Slot(min(_PART, count), side, most, pinned=self.device.type == "cuda")
        memory = slot.rows()
        threads, parts, keys = self.options.decoding_threads(), list[tuple[Tensor, ...]](), list[str]()
        with closing(map_ahead(self._decode, range(count), threads=threads, ahead=2 * threads)) as decoded:
            for begin in range(0, count, _PART):
                rows = min(_PART, count - begin)
                for row, (record, photo) in zip(range(rows), decoded, strict=False):
                    memory.put(row, record.key, photo, record.boxes)
                with self.clock.stage("staging", rows):
                    part = copies.send(0, slot).arrive()
                    pixels[begin : begin + rows] = part.pixels[:rows].permute(0, 2, 3, 1)
                    parts.append((part.size[:rows], part.boxes[:rows], part.valid[:rows]))
                    keys += part.keys[:rows]
        return Batch(-1, pixels.permute(0, 3, 1, 2), *map(torch.cat, zip(*parts, strict=True)), tuple(keys))

    def _decode(self, number: int) -> tuple[Any, Pixels]:
        """A photo, or the next that decodes; the pool then has that one twice."""
        with self.clock.stage("read"):
            record = self.photos.data.read(number)
        with self.clock.stage("decode"):
            return self.photos.first_good(record, lambda tries: (number + tries) % len(self.photos.data))

    @override
    def _take(self, step: int) -> Batch:
        rows = self.photos.sampler.indices(step)
        if self.photos.skipped:
            rows = np.array([self._good(step, row) for row in range(len(rows))])
        with self.clock.stage("staging", len(rows)):
            index, photos = torch.from_numpy(rows), self._all
            if self.device.type == "cuda":
                index = index.pin_memory().to(self.device, non_blocking=True)  # the host does not wait for it
            pixels = photos.pixels.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
            rest = (tensor[index] for tensor in (photos.size, photos.boxes, photos.valid))
            return Batch(step, pixels, *rest, tuple(photos.keys[row] for row in rows.tolist()))

    def _good(self, step: int, row: int) -> int:
        """The number of a row's photo, or of the next one that decodes."""
        tries = 0
        while (number := self.photos.sampler.after(step, row, tries)) in self.photos.skipped:
            tries += 1
        return number
