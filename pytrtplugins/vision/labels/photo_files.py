"""The photo that labels mean, wherever it lies in a set."""

from __future__ import annotations

import posixpath
import re
from itertools import takewhile

from ...errors import FormatError
from ...utils.file_set import FileSet
from .annotations import PHOTO_SUFFIXES, PhotoFilter, Problem
from .pairing import AmbiguousError, PathIndex, is_kind, splits
from .photo import read_file_header, unknown_form

__all__ = ["PhotoFiles"]


class PhotoFiles:
    """The photos of a set.

    Args:
        files: The files of the set.
        exif: What its labels are drawn on; see `EXIF` of ``shards.photo``. None: their sizes say it.

    Attributes:
        names: Names of all photos, sorted.
    """

    def __init__(self, files: FileSet, exif: str | None = None) -> None:
        self._files, self._exif = files, exif
        self.names = sorted(name for name in files if name.lower().endswith(PHOTO_SUFFIXES))
        self._known = set(self.names)
        self._by_name, self._by_stem = (PathIndex(self.names, stems=stems) for stems in (False, True))

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def named(self, name: str, near: str = "") -> str | None:
        """The photo that a list or a file of labels names; None: there is none.

        The name is a path from the folder of that file, or of the set; or it has fewer folders than the photo's path, or more.
        A file ``instances_val.json`` prefers photos in a folder ``val``, as COCO has it, and takes none from a folder ``train``.

        Args:
            name: As the file has it.
            near: The file's own name.

        Raises:
            AmbiguousError: there are several such photos.
        """
        return self._named(name, near, self._by_name, splits(near) and splits(near) | splits(name))

    def listed(self, name: str, near: str = "") -> str | None:
        """As `named`, of a list of photos, which may leave out the photo's suffix, and may be of any part of the data.

        Raises:
            AmbiguousError: there are several such photos.
        """
        whole = self._named(name, near, self._by_name, set())
        return whole or self._named(name, near, self._by_stem, set(), suffix=".")

    def wanted(self, name: str, near: str, wanted: PhotoFilter, problems: list[Problem]) -> str | None:
        """The photo that a file of labels names, if it is wanted; where there is none, or there are several, that becomes a problem."""
        try:
            photo = self.named(name, near)
        except AmbiguousError as error:
            if any(each in wanted for each in error.candidates):
                problems.append(Problem(near, str(error)))
            return None
        if photo is None and name in wanted:
            problems.append(Problem(name[:200], f"the photo is missing, which {near} names"))
        return photo if photo is not None and photo in wanted else None

    def size(self, name: str) -> tuple[int, int]:
        """Width and height in pixels that a photo's own head states, of what labels are drawn on that state no size.

        Raises:
            ImageError: it is no image.
            FormatError: that may be one of two sizes.
        """
        photo = read_file_header(self._files, name)
        if self._exif is None and photo.size("shown") != photo.size("stored"):
            raise FormatError(unknown_form(photo))
        return photo.size(self._exif or "shown")

    def _named(self, name: str, near: str, index: PathIndex, parts: set[str], suffix: str = "") -> str | None:
        """The photo with this name; where ``parts`` are given, it is in no folder of another part of the data."""
        normal = posixpath.normpath(name.replace("\\", "/")) + suffix
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(near), normal))
        known = next((path for path in (beside, name, normal) if path in self._known), None)
        if known is not None:
            return known
        levels = [*_within(near, normal, index), index.equal(beside), index.equal(normal), index.longer(normal)]
        tails = ["/".join(normal.split("/")[start:]) for start in range(1, normal.count("/") + 1)]
        levels += [[each for each in index.equal(tail) if each.count("/") == tail.count("/")] for tail in tails]
        found = next((level for level in (_consistent(level, parts) for level in levels) if level), [])
        nearest = max((_shared(each, near) for each in found), default=0)
        found = [each for each in found if _shared(each, near) == nearest]
        if len(found) > 1:
            raise AmbiguousError(f"{name[:200]!r}{f' in {near}' if near else ''} may be", found)
        return found[0] if found else None


def _within(near: str, name: str, index: PathIndex) -> list[list[str]]:
    """Photos in the folder that the last word of a file's name tells: ``val2017`` for ``instances_val2017.json``."""
    folder = re.split(r"[_\-]", posixpath.basename(near).rpartition(".")[0])[-1]
    path = f"{folder}/{name}"
    return [] if not folder or is_kind(folder) else [index.equal(path), index.longer(path)]


def _consistent(photos: list[str], parts: set[str]) -> list[str]:
    """The photos that are not of another part of the data, such as ``train`` for ``instances_val.json``."""
    return [photo for photo in photos if not parts or not splits(photo.rpartition("/")[0] + "/") - parts]


def _shared(name: str, near: str) -> int:
    """How many folders a photo and the labels have in common, from the first on."""
    pairs = zip(name.split("/"), near.split("/"), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
