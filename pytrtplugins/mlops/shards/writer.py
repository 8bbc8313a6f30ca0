"""Write one shard: a tar with key.jpg and key.json per photo, and its index. Equal photos give equal bytes."""

from __future__ import annotations

import hashlib
import json
import tarfile
import zlib
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from .index import BLOCK, Index

__all__ = ["ShardWriter", "label_text", "stored_bytes"]


def label_text(size: tuple[int, int], boxes: npt.NDArray[np.float32], classes: Sequence[str]) -> bytes:
    """Contents of a photo's .json: size in pixels, boxes, and the class name of each box."""
    numbers = [int(row[0]) for row in boxes]
    shares = [[float(str(value)) for value in row[1:]] for row in boxes]  # the shortest text of a float32
    facts = {
        "width": size[0],
        "height": size[1],
        "boxes": [[number, *row] for number, row in zip(numbers, shares, strict=True)],
        "names": [classes[number] for number in numbers],
    }
    return json.dumps(facts, ensure_ascii=False).encode()


def stored_bytes(photo_bytes: int, boxes: int) -> int:
    """Approximate size of a photo in a tar, in bytes."""
    return 2 * BLOCK + _padded(photo_bytes) + _padded(80 + 60 * boxes)


class ShardWriter:
    """Writes photos into a tar, and collects its index."""

    def __init__(self, file: BinaryIO, classes: Sequence[str]) -> None:
        self._file, self._classes = file, classes
        self._sha256, self._offset = hashlib.sha256(), 0
        self._keys: list[str] = []
        self._photos: list[tuple[int, int]] = []
        self._checksums: list[int] = []
        self._boxes: list[npt.NDArray[np.float32]] = []

    def add(self, key: str, suffix: str, image: bytes, size: tuple[int, int], boxes: npt.NDArray[np.float32]) -> None:
        """Add a photo of so many pixels with its boxes."""
        offset = self._add_file(f"{key}.{suffix}", image)
        self._add_file(f"{key}.json", label_text(size, boxes, self._classes))
        self._keys.append(key)
        self._photos.append((offset, len(image)))
        self._checksums.append(zlib.crc32(image))
        self._boxes.append(boxes)

    def finish(self) -> tuple[Index, str]:
        """End the tar; gives its index, and its SHA-256."""
        self._write(bytes(2 * BLOCK))
        return make_index(
            self._offset, self._photos, self._checksums, self._keys, self._boxes
        ), self._sha256.hexdigest()

    def _add_file(self, name: str, data: bytes) -> int:
        """Append a file to the tar; returns the offset of its contents."""
        info = tarfile.TarInfo(name)  # with time 0, and nobody's
        info.size = len(data)
        self._write(info.tobuf(tarfile.PAX_FORMAT))
        offset = self._offset
        self._write(data)
        self._write(bytes(_padded(len(data)) - len(data)))
        return offset

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._sha256.update(data)
        self._offset += len(data)


def make_index(
    tar_bytes: int,
    photos: Sequence[tuple[int, int]],
    checksums: Sequence[int],
    keys: Sequence[str],
    boxes: Sequence[npt.NDArray[np.float32]],
) -> Index:
    """An index of what is known of each photo."""
    return Index(
        tar_bytes,
        np.array(photos, np.int64).reshape(-1, 2),
        np.array(checksums, np.uint32),
        tuple(keys),
        np.concatenate([np.zeros((0, 5), np.float32), *boxes]).astype(np.float32),
        np.cumsum([len(rows) for rows in boxes], dtype=np.int64),
    )


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
