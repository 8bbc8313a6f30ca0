"""Read sets of shards: any photo with its boxes, by number, from any thread."""

from __future__ import annotations

import os
import weakref
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ...utils.files import open_regular, regular_size
from .index import Index
from .manifest import Manifest

__all__ = ["Example", "Shards"]

_MAX_OPEN = 512  # tars that stay open; processes usually may open 1,024 files


@dataclass(frozen=True)
class Example:
    """A photo and its boxes.

    Attributes:
        key: Name of the photo, without its suffix.
        image: Contents of the photo's file: JPEG, PNG or WebP.
        boxes: (M, 5) float32: class, centre x, centre y, width, height; the last four are shares of the photo's sides, 0..1.
    """

    key: str
    image: bytes
    boxes: npt.NDArray[np.float32]


class Shards:
    """A set of shards, with indexes in memory and photos on disk. It may be shared by threads, and by processes after a fork."""

    def __init__(self, folder: Path, manifest: Manifest, indexes: tuple[Index, ...]) -> None:
        self.folder, self.manifest, self._indexes = folder, manifest, indexes
        self._paths = [folder / shard.file for shard in manifest.shards]
        self._ends = np.cumsum([len(index) for index in indexes], dtype=np.int64)
        self._files = [_open(path) for path in self._paths[:_MAX_OPEN]]
        self._finalizer = weakref.finalize(self, _close, self._files)

    @classmethod
    def open(cls, folder: str | Path) -> Shards:
        """Open a set that `pytrt shards make` wrote. File sizes are checked; photos are not read.

        Raises:
            NoDataError: the folder is no set of shards.
            FormatError: a tar or an index is missing, damaged, truncated or of another set; ``.path`` says which.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder)
        indexes = tuple(_index(folder, manifest, number) for number in range(len(manifest.shards)))
        return cls(folder, manifest, indexes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Shards.open, (self.folder,)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their numbers."""
        return self.manifest.classes

    @property
    def digest(self) -> str:
        """SHA-256 of the classes and of all photos and boxes, as 64 hex digits."""
        return self.manifest.digest

    def key(self, number: int) -> str:
        """A photo's name, without its suffix."""
        shard, inside = self._place(number)
        return self._indexes[shard].keys[inside]

    def boxes(self, number: int) -> npt.NDArray[np.float32]:
        """A photo's boxes, without reading the photo; see `Example`."""
        shard, inside = self._place(number)
        return self._indexes[shard].boxes_of(inside)

    def locate(self, number: int) -> tuple[Path, int, int]:
        """Location of a photo's bytes: tar, offset and length."""
        shard, inside = self._place(number)
        offset, size = self._indexes[shard].photos[inside].tolist()
        return self._paths[shard], offset, size

    def read(self, number: int) -> Example:
        """Read a photo with its boxes, and check its checksum.

        Raises:
            IndexError: there is none of this number.
            FormatError: the photo's bytes are damaged, or the tar ends before them.
        """
        shard, inside = self._place(number)
        index = self._indexes[shard]
        offset, size = index.photos[inside].tolist()
        image = self._bytes(shard, offset, size)
        if len(image) < size or zlib.crc32(image) != index.checksums[inside]:
            what = "is damaged" if len(image) == size else "is not there: the tar is truncated"
            raise FormatError(
                f"{self._paths[shard]}: the photo {index.keys[inside]!r}, {size:,} bytes at {offset:,}, {what}.\n"
                f"Do: pytrt shards check {self.folder}; then copy or make the set again",
                path=self._paths[shard],
                key=index.keys[inside],
            )
        return Example(index.keys[inside], image, index.boxes_of(inside))

    def close(self) -> None:
        """Close the tars; they are closed with the object otherwise."""
        self._finalizer()

    def _bytes(self, shard: int, offset: int, size: int) -> bytes:
        if shard < len(self._files):
            return os.pread(self._files[shard], size, offset)
        file = _open(self._paths[shard])
        try:
            return os.pread(file, size, offset)
        finally:
            os.close(file)

    def _place(self, number: int) -> tuple[int, int]:
        """The shard of a photo, and its number there."""
        if not 0 <= number < len(self):
            raise IndexError(f"photo {number}: the set {str(self.folder)!r} has {len(self):,}")
        shard = int(np.searchsorted(self._ends, number, side="right"))
        return shard, number - (int(self._ends[shard - 1]) if shard else 0)


def _open(path: Path) -> int:
    with open_regular(path, within=path.parent) as file:
        return os.dup(file.fileno())


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())


def _index(folder: Path, manifest: Manifest, number: int) -> Index:
    """The index of a shard, compared with the manifest and with the size of the tar."""
    shard = manifest.shards[number]
    tar, path = folder / shard.file, folder / shard.index
    again = f"Do: pytrt shards check {folder}; then copy or make the set again"
    try:
        size = regular_size(tar, within=folder)
    except FileNotFoundError:
        raise FormatError(f"{tar}: the shard is missing.\n{again}", path=tar) from None
    if size != shard.bytes:
        raise FormatError(f"{tar}: expected {shard.bytes:,} bytes, found {size:,}.\n{again}", path=tar)
    try:
        index = Index.read(path, len(manifest.classes), size)
    except FileNotFoundError:
        raise FormatError(
            f"{path}: the index is missing.\nDo: pytrt shards check {folder} --repair, which makes it from the tar",
            path=path,
        ) from None
    if (index.tar_bytes, len(index), len(index.boxes)) != (shard.bytes, shard.photos, shard.boxes):
        raise FormatError(
            f"{path}: the index is of another shard: {len(index):,} photos, expected {shard.photos:,}.\n"
            f"Do: pytrt shards check {folder} --repair, which makes it from the tar",
            path=path,
        )
    return index
