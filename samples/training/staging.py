"""Host memory of a batch, and its asynchronous copy to the device."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .batch import GREY, Batch
from .photos import Pixels

__all__ = ["Copies", "Rows", "Slot", "Staged"]


class Slot:
    """Host memory of one batch; page-locked for a GPU, so that copies are asynchronous.

    Args:
        photos: Rows.
        side: Width and height of the stored photos; 0 where the pixels never are on the host.
        most: Boxes of a photo that are kept.
        pinned: Whether it is page-locked.
    """

    def __init__(self, photos: int, side: int, most: int, *, pinned: bool = False) -> None:
        self.pixels = torch.empty((photos, side, side, 3), dtype=torch.uint8, pin_memory=pinned)
        self.size = torch.empty((photos, 2), pin_memory=pinned)
        self.boxes = torch.empty((photos, most, 5), pin_memory=pinned)
        self.valid = torch.empty((photos, most), dtype=torch.bool, pin_memory=pinned)
        self.keys = [""] * photos

    def pin(self) -> None:
        """Move it to page-locked memory."""
        self.pixels, self.size, self.boxes, self.valid = (
            t.pin_memory() for t in (self.pixels, self.size, self.boxes, self.valid)
        )

    def rows(self) -> Rows:
        """The slot's memory as arrays, writable from any thread."""
        return Rows(self.pixels.numpy(), self.size.numpy(), self.boxes.numpy(), self.valid.numpy(), self.keys)


class Rows(NamedTuple):
    """The memory of a slot as NumPy arrays, written row by row; PyTorch would release the GIL in each call."""

    pixels: Pixels
    size: npt.NDArray[np.float32]
    boxes: npt.NDArray[np.float32]
    valid: npt.NDArray[np.bool_]
    keys: list[str]

    def put(self, row: int, key: str, pixels: Pixels, boxes: npt.NDArray[np.float32]) -> None:
        """Write a photo and its boxes into a row; the rest of the square is grey."""
        memory, (height, width) = self.pixels[row], pixels.shape[:2]
        memory[:height, :width] = pixels
        if height < len(memory):
            memory[height:] = GREY
        if width < memory.shape[1]:
            memory[:height, width:] = GREY
        self.put_boxes(row, key, (width, height), boxes)

    def put_boxes(self, row: int, key: str, size: tuple[int, int], boxes: npt.NDArray[np.float32]) -> None:
        """Write all but the pixels. Of too many boxes the largest stay, in their order."""
        most = self.boxes.shape[1]
        if len(boxes) > most:
            boxes = boxes[np.sort(np.argsort(-boxes[:, 3] * boxes[:, 4], kind="stable")[:most])]
        self.keys[row], self.size[row] = key, size
        self.boxes[row, : len(boxes)], self.boxes[row, len(boxes) :] = boxes, 0
        self.valid[row] = np.arange(most) < len(boxes)


@dataclass(frozen=True)
class Staged:
    """A batch that is being copied to the device."""

    batch: Batch
    copied: Any  # an event of CUDA; None on the CPU

    def arrive(self) -> Batch:
        """The batch, for the device's current stream, which waits for it; the caller does not."""
        if self.copied is not None:
            stream = torch.cuda.current_stream(self.batch.pixels.device)
            stream.wait_event(self.copied)
            for field in fields(self.batch):
                if isinstance(tensor := getattr(self.batch, field.name), Tensor):
                    tensor.record_stream(stream)  # its memory was asked for in another stream
        return self.batch


class Copies:
    """Copies slots to a device, on its own stream."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def stream(self) -> Any:
        """A context in which this stream is the current one."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def send(self, step: int, slot: Slot, pixels: Tensor | None = None, *, wait: bool = True) -> Staged:
        """Copy a slot.

        Args:
            step: Which the batch is for.
            slot: What is copied.
            pixels: (N, side, side, 3) uint8, if they are on the device already.
            wait: Wait in this thread until the slot can be filled again; the device's other work goes on.
        """
        with self.stream():
            pixels = self._copy(slot.pixels) if pixels is None else pixels
            rest = [self._copy(tensor) for tensor in (slot.size, slot.boxes, slot.valid)]
            event = None
            if self._stream is not None:
                event = torch.cuda.Event(blocking=True)
                event.record(self._stream)
                if wait:
                    event.synchronize()
        return Staged(Batch(step, pixels.permute(0, 3, 1, 2), *rest, tuple(slot.keys)), event)

    def _copy(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, non_blocking=True, copy=True)
