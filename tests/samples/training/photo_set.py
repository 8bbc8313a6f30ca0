"""A small set of photos in memory, with the interface of the project's shards."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image


class PhotoSet:
    """JPEG photos of several sizes, with 0 to 3 boxes each. ``bad`` ones do not decode."""

    def __init__(self, count: int, bad: tuple[int, ...] = (), suffix: str = "JPEG") -> None:
        rng = np.random.default_rng(0)
        self.records = []
        for number in range(count):
            width, height = rng.integers(20, 90, 2).tolist()
            coarse = rng.integers(0, 255, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(coarse).resize((width, height)).save(file, suffix)
            image = b"no photo" if number in bad else file.getvalue()
            boxes = rng.random((number % 4, 5), dtype=np.float32)
            self.records.append(SimpleNamespace(key=f"photo{number}", image=image, boxes=boxes))

    def __len__(self) -> int:
        return len(self.records)

    def read(self, number: int) -> SimpleNamespace:
        return self.records[number]

    def locate(self, number: int) -> tuple[Path, int, int]:
        return Path("set-00000.tar"), 512 * number, len(self.records[number].image)
