"""Small sets of labelled photos, in darknet's layout."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("cat", "dog")


def photo(seed: int, size: tuple[int, int] = (24, 16), kind: str = "JPEG", **more) -> bytes:
    """A photo of noise, as the contents of a file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=kind, **more)
    return file.getvalue()


def make_set(folder: Path, count: int = 7) -> Path:
    """Photo i has i % 3 boxes, whose class is i % 2."""
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    for i in range(count):
        (folder / "images" / f"p{i}.jpg").write_bytes(photo(i))
        lines = [f"{i % 2} 0.5 0.5 0.25 {0.125 * (1 + box)}" for box in range(i % 3)]
        (folder / "labels" / f"p{i}.txt").write_text("\n".join(lines) + "\n")
    (folder / "train.txt").write_text("".join(f"images/p{i}.jpg\n" for i in range(0, count, 2)))
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
