"""Photos to load: a set of shards, or photos that are drawn for the purpose."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_DRAWN = 64  # photos that differ
_QUALITY = 90  # of JPEG
_CLASSES = 6


@dataclass(frozen=True)
class Drawn:
    """A record as `pytrtplugins.mlops.shards.Example` is."""

    key: str
    image: bytes
    boxes: npt.NDArray[np.float32]


class DrawnPhotos:
    """JPEG files in memory: soft shapes with grain, about as large as photos of that size are.

    Args:
        count: Records; every `_DRAWN` of them share their bytes.
        width: Pixels.
        height: Pixels.
    """

    classes = tuple(f"class {number}" for number in range(_CLASSES))

    def __init__(self, count: int, width: int, height: int) -> None:
        rng = np.random.default_rng(count)
        classes, places = rng.integers(0, _CLASSES, (count, 3, 1)), rng.uniform(0.2, 0.8, (count, 3, 4))
        self._boxes = np.concatenate([classes, places], 2).astype(np.float32)
        self._files = [_draw(np.random.default_rng(seed), width, height) for seed in range(min(_DRAWN, count))]
        self.title = f"{count:,} drawn photos of {width}x{height}, {np.mean([len(file) for file in self._files]) / 1e3:.0f} kB each"

    def __len__(self) -> int:
        return len(self._boxes)

    def read(self, number: int) -> Drawn:
        """A record; its boxes differ from those of all others."""
        return Drawn(f"drawn{number}", self._files[number % len(self._files)], self._boxes[number])


def _draw(rng: np.random.Generator, width: int, height: int) -> bytes:
    from PIL import Image

    coarse = rng.integers(0, 256, (height // 40 + 2, width // 40 + 2, 3), dtype=np.uint8)
    soft = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(float)
    grain = rng.normal(0, 6, (height, width, 1))
    file = io.BytesIO()
    Image.fromarray((soft + grain).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


def open_photos(data: Path | None, count: int, size: tuple[int, int]) -> Any:
    """The set that a user named, with a ``title``; without one, drawn photos."""
    if data is None:
        return DrawnPhotos(count, *size)
    from pytrtplugins.mlops.shards import Shards

    shards: Any = Shards.open(data)
    shards.title = f"{len(shards):,} photos of {data.name}"
    return shards
