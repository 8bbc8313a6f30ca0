"""Labelled photos where they lie, read as a set of shards is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import NoDataError
from ..utils.file_set import FileSet
from ..vision.image import MAX_FILE_BYTES
from .labels import LabelledPhoto, Problem, read_labels
from .labels.photo_files import PhotoFiles
from .manifest import NAME
from .plan import PlannedPhoto, plan_photos
from .reader import Example, Shards

__all__ = ["PhotoSet", "open_photos"]


class PhotoSet:
    """Photos and labels in folders or tars, with the same methods as `Shards`. Threads share it.

    Attributes:
        name: The paths.
        labels: Format of the labels; ``none``: there are none, and no photo has boxes.
        classes: Names, in the order of their numbers.
        problems: Photos and labels that cannot be used, which are left out.
    """

    def __init__(
        self, files: FileSet, labels: str, classes: tuple[str, ...], photos: list[PlannedPhoto], problems: list[Problem]
    ) -> None:
        self.name, self.labels, self.classes, self.problems = files.name, labels, classes, tuple(problems)
        self._files, self._photos = files, photos

    @classmethod
    def open(
        cls,
        source: str | Path | Iterable[str | Path],
        *,
        labels: str = "auto",
        classes: Sequence[str] | None = None,
        listed: str | Sequence[str] | None = None,
    ) -> PhotoSet:
        """Open a folder or an uncompressed tar, or several that make one set together.

        Args:
            source: The paths.
            labels: Format of the labels: one of `FORMATS`; ``auto``: what the files show; ``none``: photos without labels.
            classes: Names of the classes, in the order of their numbers; None: as the labels have them.
            listed: The photos to take, by files or stems, or the name of a list in the set. None: all.

        Raises:
            NoDataError: a path does not exist, or there are no photos or labels.
            FormatError: a tar, or the labels of all photos, cannot be read.
            UsageError: there are labels in several formats.
        """
        files = FileSet(source)
        names = files.lines(listed) if isinstance(listed, str) else listed
        if labels == "none":
            found, labels, classes = (
                [LabelledPhoto(name, np.zeros((0, 5))) for name in PhotoFiles(files).names],
                labels,
                (),
            )
            problems: list[Problem] = []
        else:
            annotations = read_labels(files, labels=labels, classes=classes, listed=names)
            found, labels, classes = annotations.photos, annotations.format, annotations.classes
            problems = annotations.problems
        photos, more, _ = plan_photos(files, found)
        if not photos:
            raise NoDataError(f"data {files.name!r}: no photos that can be used were found.", path=files.name)
        return cls(files, labels, tuple(classes), photos, [*problems, *more])

    def __len__(self) -> int:
        return len(self._photos)

    def key(self, number: int) -> str:
        """A photo's name, without its suffix."""
        return self._photos[number].key

    def boxes(self, number: int) -> npt.NDArray[np.float32]:
        """A photo's boxes; see `Example`."""
        return self._photos[number].boxes

    def read(self, number: int) -> Example:
        """A photo with its boxes.

        Raises:
            IndexError: there is none of this number.
            FormatError: the file is too large, or its tar is truncated.
            OSError: it cannot be read.
        """
        photo = self._photos[number]
        return Example(photo.key, self._files.read(photo.file, MAX_FILE_BYTES), photo.boxes)


def open_photos(source: str | Path, labels: str = "auto") -> Shards | PhotoSet:
    """A set of shards, where the folder is one, else photos with their labels.

    Raises:
        NoDataError: nothing is there, or no labels; ``.path`` says where.
        FormatError: what is there is damaged.
        UsageError: there are labels in several formats.
    """
    if (Path(source) / NAME).is_file():
        return Shards.open(source)
    return PhotoSet.open(source, labels=labels)
