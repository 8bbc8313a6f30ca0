"""The index of a shard: offset and boxes of each photo, so that any photo needs one read."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ...utils.array_files import read_npz
from ...utils.atomic import write_atomic
from ...utils.text_formats import parse_json, shorten

__all__ = ["BLOCK", "VERSION", "Index"]

VERSION = 1
BLOCK = 512
"""Bytes of a tar's blocks: a photo takes at least one for its header and one for itself."""
_MAX_BYTES = 1 << 30
_HEADERS = 1 << 14  # bytes of the .npy headers, and of the text about the format
_ARRAYS = {
    "head": "u1",
    "photos": "i8",
    "checksums": "u4",
    "keys": "u1",
    "key_ends": "i8",
    "boxes": "f4",
    "box_ends": "i8",
}


@dataclass(frozen=True)
class Index:
    """Keys, offsets and boxes of a shard's photos.

    Fields:
        tar_bytes: Size of the tar.
        photos: (N, 2) int64: offset and size of each photo in the tar.
        checksums: (N,) uint32: CRC-32 of each photo.
        keys: Name of each photo, without its suffix.
        boxes: (B, 5) float32, of all photos: class, centre x, centre y, width, height, in shares of the photo's sides.
        box_ends: (N,) int64: where the boxes of each photo end.
    """

    tar_bytes: int
    photos: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.uint32]
    keys: tuple[str, ...]
    boxes: npt.NDArray[np.float32]
    box_ends: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.photos)

    def boxes_of(self, number: int) -> npt.NDArray[np.float32]:
        """The rows of a photo."""
        return self.boxes[self.box_ends[number - 1] if number else 0 : self.box_ends[number]]

    def write(self, path: Path) -> None:
        """Write an .npz file that NumPy can read; the same index gives the same bytes."""
        encoded = [key.encode() for key in self.keys]
        head = {"format": "pytrtplugins shard index", "version": VERSION, "tar_bytes": self.tar_bytes}
        arrays: dict[str, npt.NDArray[Any]] = {
            "head": np.frombuffer(json.dumps(head).encode(), np.uint8),
            "photos": self.photos,
            "checksums": self.checksums,
            "keys": np.frombuffer(b"".join(encoded), np.uint8),
            "key_ends": np.cumsum([len(key) for key in encoded], dtype=np.int64),
            "boxes": self.boxes,
            "box_ends": self.box_ends,
        }
        arrays = {name: array.astype(f"<{_ARRAYS[name]}", copy=False) for name, array in arrays.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # mypy takes them for its option
        write_atomic(path, buffer.getvalue(), within=path.parent)

    @classmethod
    def read(cls, path: Path, classes: int, tar_bytes: int) -> Index:
        """Read an index, and check its consistency: ranges, names, boxes.

        Args:
            path: The file.
            classes: How many there are.
            tar_bytes: Size of the tar: an index that takes more memory is refused before it is read.

        Raises:
            FormatError: it is damaged, or of another version; ``.path`` says which.
        """
        arrays = read_npz(path, max_bytes=min(_MAX_BYTES, tar_bytes + _HEADERS), within=path.parent)
        for name, kind in _ARRAYS.items():
            dims = 2 if name in ("photos", "boxes") else 1
            if name not in arrays or arrays[name].dtype != np.dtype(f"<{kind}") or arrays[name].ndim != dims:
                raise _damaged_error(path, f"its array {name!r} is missing, or of another type")
        head = _head(arrays["head"], path)
        photos, key_ends, box_ends = arrays["photos"], arrays["key_ends"], arrays["box_ends"]
        counts = {len(photos), len(arrays["checksums"]), len(key_ends), len(box_ends)}
        if len(counts) > 1 or photos.shape[1:] != (2,) or arrays["boxes"].shape[1:] != (5,):
            raise _damaged_error(path, "its arrays have different lengths")
        _check_ends(key_ends, arrays["keys"], path)
        _check_ends(box_ends, arrays["boxes"], path)
        _check_ranges(photos, head["tar_bytes"], path)
        _check_boxes(arrays["boxes"], classes, path)
        keys = _split(arrays["keys"].tobytes(), key_ends, path)
        return cls(head["tar_bytes"], photos, arrays["checksums"], keys, arrays["boxes"], box_ends)


def _head(array: npt.NDArray[Any], path: Path) -> dict[str, Any]:
    head = parse_json(array.tobytes(), path)
    size = head.get("tar_bytes") if isinstance(head, dict) else None
    if not isinstance(head, dict) or head.get("format") != "pytrtplugins shard index" or type(size) is not int:
        raise _damaged_error(path, "it is not the index of a shard")
    if head.get("version") != VERSION:
        raise FormatError(
            f"{path}: version {shorten(head.get('version'))} of the index is not known; this package reads {VERSION}.\n"
            "Do: pip install --upgrade pytrtplugins",
            path=path,
        )
    return head


def _check_ends(ends: npt.NDArray[np.int64], items: npt.NDArray[Any], path: Path) -> None:
    steps = np.diff(ends, prepend=0)
    if (steps < 0).any() or (ends[-1] if len(ends) else 0) != len(items) or (ends < 0).any():
        raise _damaged_error(path, "its lengths do not add up")


def _check_ranges(photos: npt.NDArray[np.int64], tar_bytes: int, path: Path) -> None:
    offsets, sizes = photos[:, 0], photos[:, 1]
    if (
        (offsets < BLOCK).any()
        or (sizes < 1).any()
        or (offsets > tar_bytes).any()
        or (sizes > tar_bytes - offsets).any()
    ):
        raise _damaged_error(path, f"a photo lies outside its tar of {tar_bytes:,} bytes")


def _check_boxes(boxes: npt.NDArray[np.float32], classes: int, path: Path) -> None:
    ids = boxes[:, 0]
    if not np.isfinite(boxes).all() or (ids < 0).any() or (ids >= classes).any() or (ids % 1 != 0).any():
        raise _damaged_error(path, f"a box is not finite, or has a class that is not one of {classes}")


def _split(text: bytes, ends: npt.NDArray[np.int64], path: Path) -> tuple[str, ...]:
    starts = np.concatenate(([0], ends[:-1]))  # no lists, which take several times as much memory
    try:
        return tuple(text[start:end].decode() for start, end in zip(starts, ends, strict=False))
    except UnicodeDecodeError as error:
        raise _damaged_error(path, "a photo's name is not UTF-8") from error


def _damaged_error(path: Path, what: str) -> FormatError:
    return FormatError(
        f"{path}: the index is damaged: {what}.\nDo: pytrt shards check {path.parent} --repair, which makes it from the tar",
        path=path,
    )
