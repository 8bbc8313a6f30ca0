"""Sets of photos in memory."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from pytrtplugins.mlops.shards import Example


def grey(level: int, size: tuple[int, int] = (32, 24)) -> bytes:
    """A photo whose left half is black, and the right half as bright as is said."""
    return halves((0, 0, 0), (level, level, level), size)


def halves(left: tuple[int, int, int], right: tuple[int, int, int], size: tuple[int, int] = (32, 24)) -> bytes:
    """A photo of two colours, red, green and blue."""
    pixels = np.empty((size[1], size[0], 3), np.uint8)
    pixels[:, : size[0] // 2] = left
    pixels[:, size[0] // 2 :] = right
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


@dataclass
class Photos:
    """Photos and boxes as they are given."""

    images: list[bytes]
    boxes: list[list[list[float]]]
    classes: tuple[str, ...] = ("cat", "dog")
    read_numbers: list[int] = field(default_factory=list)

    def __len__(self):
        return len(self.images)

    def read(self, number):
        self.read_numbers.append(number)
        return Example(str(number), self.images[number], np.array(self.boxes[number], np.float32).reshape(-1, 5))


def drawn(count: int, seed: int, low: int = 60, high: int = 200, side: float = 0.3, kind: int = 0) -> Photos:
    """Photos of random brightness with one or two boxes of random size."""
    random = np.random.default_rng(seed)
    boxes = [
        [[kind, 0.5, 0.5, *random.uniform(side / 2, side, 2)] for _ in range(random.integers(1, 3))]
        for _ in range(count)
    ]
    return Photos([grey(int(level)) for level in random.integers(low, high, count)], boxes)
