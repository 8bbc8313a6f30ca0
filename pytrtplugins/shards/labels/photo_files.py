"""The photo that labels mean, wherever it lies in a set."""

from __future__ import annotations

from collections import defaultdict
from itertools import takewhile
from pathlib import PurePosixPath

from ...utils.file_set import FileSet
from ...vision.image import MAX_FILE_BYTES
from ..photo import read_header
from .annotations import PHOTO_SUFFIXES

__all__ = ["PhotoFiles"]


class PhotoFiles:
    """The photos of a set, by their names without folders."""

    def __init__(self, files: FileSet) -> None:
        self._files = files
        self.names = sorted(name for name in files if name.lower().endswith(PHOTO_SUFFIXES))
        self._by_name, self._by_stem = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for name in self.names:
            last = name.rpartition("/")[2]
            self._by_name[last].append(name)
            self._by_stem[last.rpartition(".")[0]].append(name)

    def named(self, name: str, near: str) -> str | None:
        """The photo that a file of labels names, perhaps with a part of its folders; of several the one nearest to the labels."""
        if name in self._files and name.lower().endswith(PHOTO_SUFFIXES):
            return name
        path = PurePosixPath(name.replace("\\", "/"))
        found = self._by_name.get(path.name, [])
        ends = [each for each in found if f"/{each}".endswith(f"/{path}")]
        return _nearest(ends or found, near)

    def of_stem(self, stem: str, near: str) -> str | None:
        """The photo whose name without suffix is this one."""
        return _nearest(self._by_stem.get(stem, []), near)

    def size(self, name: str) -> tuple[int, int]:
        """Width and height in pixels that a photo's own head states.

        Raises:
            ImageError: it is no image.
        """
        photo = read_header(self._files.read(name, MAX_FILE_BYTES), name)
        return photo.width, photo.height


def _nearest(names: list[str], near: str) -> str | None:
    def shared(name: str) -> int:
        """How many folders a photo and the labels have in common, from the first on."""
        pairs = zip(name.split("/"), near.split("/"), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    return max(names, key=shared, default=None)
