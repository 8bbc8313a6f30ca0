"""Photos and boxes of a step on the device, as loaders return them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["GREY", "NO_BOX", "Batch", "Pool", "as_pool"]

GREY = 127  # around a photo
NO_BOX = -1.0  # class of an unused row of boxes


@dataclass(frozen=True)
class Pool:
    """Photos on the device from which augmented images are rendered.

    Fields:
        pixels: (N, side, side, 3) uint8, each photo in the upper left corner, grey around.
        size: (N, 2) float32, width and height of the photo in pixels.
        boxes: (N, most, 5) float32: class, x1, y1, x2, y2 in pixels; class -1 where there is no box.
        storage: (N * (side² + (side // 2)²), 3) uint8: memory whose beginning the pixels are, with room behind them for copies of
            half the size; None: there is no such room.
    """

    pixels: Tensor
    size: Tensor
    boxes: Tensor
    storage: Tensor | None = None

    def __len__(self) -> int:
        return len(self.pixels)


@dataclass(frozen=True)
class Batch:
    """The photos of a step.

    Fields:
        step: Which.
        pixels: (N, 3, side, side) uint8, channels last in memory; each photo in the upper left corner, grey around.
        size: (N, 2) float32, width and height of the photo in pixels.
        boxes: (N, most, 5) float32: class, then centre x, centre y, width and height as shares of the photo's width and height.
        valid: (N, most) bool, which boxes there are.
        keys: The photos' names.
    """

    step: int
    pixels: Tensor
    size: Tensor
    boxes: Tensor
    valid: Tensor
    keys: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.keys)


def as_pool(pixels: Tensor, size: Tensor, boxes: Tensor, valid: Tensor) -> Pool:
    """The photos of a batch as a pool; the pixels are not copied."""
    kind, centre, extent = boxes.split((1, 2, 2), 2)
    centre, half = centre * size[:, None], extent * size[:, None] / 2
    kind = torch.where(valid[..., None], kind, NO_BOX)
    return Pool(pixels.permute(0, 2, 3, 1), size, torch.cat([kind, centre - half, centre + half], 2))
