"""Pair photos with label files by their paths, else by their names. Two candidates are an error."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

__all__ = ["AmbiguousError", "Pairs", "PathIndex", "is_kind", "splits"]

_KINDS = frozenset(
    (
        "images",
        "jpegimages",
        "image",
        "img",
        "imgs",
        "photos",
        "labels",
        "label",
        "annotations",
        "annotation",
        "xml",
        "xmls",
        "txt",
    )
)
_SPLIT = re.compile(r"(train|val|test)(?:ing|id|idation)?(\d{4})?")


class AmbiguousError(ValueError):
    """A label file matches several photos, or a photo several label files.

    Attributes:
        candidates: The files that may be meant.
    """

    def __init__(self, what: str, candidates: Iterable[str]) -> None:
        names = self.candidates = sorted(candidates)
        more = f" or {len(names) - 3:,} more" if len(names) > 3 else ""
        super().__init__(f"{what} {' or '.join(name[:200] for name in names[:3])}{more}")


class PathIndex:
    """Index of paths by identity: the path without folders that name a kind of file, such as ``images`` and ``labels``.

    ``train/images/a.jpg`` and ``labels/train/a.txt`` have one identity, ``images/train/a.jpg`` and ``labels/val/a.txt`` have two.

    Args:
        paths: The paths, each once.
        stems: Whether the last name counts without its suffix.
    """

    def __init__(self, paths: Iterable[str], *, stems: bool) -> None:
        self._stems = stems
        self._exact, self._by_end = (defaultdict[tuple[str, ...], list[str]](list) for _ in range(2))
        for path in paths:
            parts = self._identity(path)
            self._exact[parts].append(path)
            for start in range(1, len(parts)):
                self._by_end[parts[start:]].append(path)

    def equal(self, path: str) -> list[str]:
        """Return the paths with the same identity."""
        return list(self._exact.get(self._identity(path), ()))

    def longer(self, path: str) -> list[str]:
        """Return the paths whose identity ends with that of ``path``, with more folders before it."""
        return list(self._by_end.get(self._identity(path), ()))

    def shorter(self, path: str) -> list[str]:
        """Return the paths whose identity is the longest proper end of that of ``path``."""
        parts = self._identity(path)
        levels = (self._exact.get(parts[start:]) for start in range(1, len(parts)))
        return list(next((level for level in levels if level), ()))

    def _identity(self, path: str) -> tuple[str, ...]:
        normal = posixpath.normpath(path.replace("\\", "/"))
        *folders, last = [part for part in normal.split("/") if part not in ("", ".", "..")] or [""]
        if self._stems and last.rpartition(".")[0]:
            last = last.rpartition(".")[0]
        return (*(folder for folder in folders if not is_kind(folder)), last)


class Pairs:
    """Photos and their label files.

    They belong together by path if their identities are the same; see `PathIndex`. Only where that is so for no photo of the set they
    belong together by name: the last names without suffixes are the same, and one has the folders of the other, perhaps behind others.

    Args:
        photos: All photos of the set.
        labels: All files of labels.
    """

    def __init__(self, photos: Sequence[str], labels: Sequence[str]) -> None:
        self._photos, self._labels = (PathIndex(paths, stems=True) for paths in (photos, labels))
        self._by_path = any(self._labels.equal(photo) for photo in photos)

    def labels_of(self, photo: str) -> str | None:
        """Return the label file of a photo; None if there is none.

        Raises:
            AmbiguousError: there are several, or it may be that of another photo, which differs not in its suffix alone.
        """
        labels = self._matches(photo, self._labels)
        if len(labels) > 1:
            raise AmbiguousError(f"{photo[:200]}: its labels may be", labels)
        if not labels:
            return None
        rivals = self._matches(labels[0], self._photos)
        if len({rival.rpartition("/")[0] for rival in rivals}) > 1:
            raise AmbiguousError(f"{labels[0][:200]} may be the labels of", rivals)
        return labels[0] if photo in rivals else None

    def photo_of(self, labels: str, name: str = "") -> str | None:
        """Return the photo of a label file; None if there is none.

        Args:
            labels: The file of labels.
            name: What the photo is called there, which decides between two that differ in their suffix alone.

        Raises:
            AmbiguousError: there are several, or the photo has other labels too.
        """
        photos = self._matches(labels, self._photos)
        photos = [photo for photo in photos if photo.rpartition("/")[2] == name] or photos
        if len(photos) > 1:
            raise AmbiguousError(f"{labels[:200]} may be the labels of", photos)
        if not photos:
            return None
        rivals = self._matches(photos[0], self._labels)
        if len(rivals) > 1:
            raise AmbiguousError(f"{photos[0][:200]}: its labels may be", rivals)
        return photos[0] if labels in rivals else None

    def _matches(self, path: str, others: PathIndex) -> list[str]:
        return (
            others.equal(path) if self._by_path else others.equal(path) or others.longer(path) or others.shorter(path)
        )


def is_kind(folder: str) -> bool:
    """Return whether a folder's name is a kind of file, such as ``images``."""
    return folder.lower() in _KINDS


def splits(path: str) -> set[str]:
    """Return the splits (``train``, ``val``, ``test``) named by the folders of a path and the words of its last part."""
    *folders, last = path.replace("\\", "/").lower().split("/")
    words = (*folders, *re.split(r"[_\-. ]", last))
    return {match[1] for word in words if (match := _SPLIT.fullmatch(word))}
