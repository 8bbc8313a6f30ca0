"""Find the photo that labels or a list name, in any folder of a data set."""

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
    """The photos of a data set.

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
        """Return the photo that a list or a label file names; None if there is none.

        The name is a path from the folder of that file, or of the set; or it has fewer folders than the photo's path, or more.
        A file ``instances_val.json`` prefers photos in a folder ``val``, as COCO has it, and takes none from a folder ``train``.

        Args:
            name: As the file has it.
            near: The file's own name.

        Raises:
            AmbiguousError: there are several such photos.
        """
        return self._find_photo(name, near, self._by_name, splits(near) and splits(near) | splits(name))

    def listed(self, name: str, near: str = "") -> str | None:
        """Return the photo that a list names, as `named` does, also without its suffix, and of any split; None if there is none.

        Raises:
            AmbiguousError: there are several such photos.
        """
        photo = self._find_photo(name, near, self._by_name, set())
        return photo or self._find_photo(name, near, self._by_stem, set(), suffix=".")

    def wanted(self, name: str, near: str, wanted: PhotoFilter, problems: list[Problem]) -> str | None:
        """Return the photo that a label file names, if the filter accepts it; add a problem if it is missing or ambiguous."""
        try:
            photo = self.named(name, near)
        except AmbiguousError as error:
            if any(candidate in wanted for candidate in error.candidates):
                problems.append(Problem(near, str(error)))
            return None
        if photo is None and name in wanted:
            problems.append(Problem(name[:200], f"the photo is missing, which {near} names"))
        return photo if photo is not None and photo in wanted else None

    def size(self, name: str) -> tuple[int, int]:
        """Return (width, height) in pixels from the photo's header, for labels that state no size.

        Raises:
            ImageError: it is no image.
            FormatError: that may be one of two sizes.
        """
        photo = read_file_header(self._files, name)
        if self._exif is None and photo.size("shown") != photo.size("stored"):
            raise FormatError(unknown_form(photo))
        return photo.size(self._exif or "shown")

    def _find_photo(self, name: str, near: str, index: PathIndex, parts: set[str], suffix: str = "") -> str | None:
        """Return the photo with a name; if ``parts`` are given, photos in folders of other splits do not count."""
        normal = posixpath.normpath(name.replace("\\", "/")) + suffix
        sibling = posixpath.normpath(posixpath.join(posixpath.dirname(near), normal))
        exact = next((path for path in (sibling, name, normal) if path in self._known), None)
        if exact is not None:
            return exact
        levels = [
            *_in_folder_of_split(near, normal, index),
            index.equal(sibling),
            index.equal(normal),
            index.longer(normal),
        ]
        tails = ["/".join(normal.split("/")[start:]) for start in range(1, normal.count("/") + 1)]
        levels += [[photo for photo in index.equal(tail) if photo.count("/") == tail.count("/")] for tail in tails]
        matches = next((level for level in (_of_parts(level, parts) for level in levels) if level), [])
        most_shared = max((_shared_folder_count(photo, near) for photo in matches), default=0)
        matches = [photo for photo in matches if _shared_folder_count(photo, near) == most_shared]
        if len(matches) > 1:
            raise AmbiguousError(f"{name[:200]!r}{f' in {near}' if near else ''} may be", matches)
        return matches[0] if matches else None


def _in_folder_of_split(near: str, name: str, index: PathIndex) -> list[list[str]]:
    """Return candidates in the folder named by the last word of a label file: ``val2017`` for ``instances_val2017.json``."""
    folder = re.split(r"[_\-]", posixpath.basename(near).rpartition(".")[0])[-1]
    path = f"{folder}/{name}"
    return [] if not folder or is_kind(folder) else [index.equal(path), index.longer(path)]


def _of_parts(photos: list[str], parts: set[str]) -> list[str]:
    """Return the photos that are not in a folder of another split, such as ``train`` for ``instances_val.json``."""
    return [photo for photo in photos if not parts or not splits(photo.rpartition("/")[0] + "/") - parts]


def _shared_folder_count(name: str, near: str) -> int:
    """Return the number of leading folders that a photo and the labels share."""
    pairs = zip(name.split("/"), near.split("/"), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
