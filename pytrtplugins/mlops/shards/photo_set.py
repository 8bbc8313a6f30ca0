"""Read labelled photos directly from their folders or tars, with the methods of a set of shards."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...errors import FormatError, ImageError, NoDataError
from ...utils.file_set import FileSet
from ...utils.prefetch import map_ahead, threads_for_files
from ...vision.image import MAX_FILE_BYTES, turn_boxes
from ...vision.labels import LabelledPhoto, Problem, read_labels
from ...vision.labels.photo import check_exif, label_orientation, read_file_header, read_header
from ...vision.labels.photo_files import PhotoFiles
from .manifest import NAME
from .plan import PlannedPhoto, plan_photos
from .reader import Example, Shards

__all__ = ["PhotoSet", "open_photos"]

_SHOWN = 10  # problems in a message


class PhotoSet:
    """Photos and labels in folders or tars, with the same methods as `Shards`. It is thread-safe.

    Attributes:
        name: The paths.
        labels: Format of the labels; ``none``: there are none, and no photo has boxes.
        classes: Names, in the order of their numbers.
        problems: Photos and labels that cannot be used, which are left out.
        changed: How many boxes were cut or left out, and other things of which there is a number, by what they are.
    """

    def __init__(
        self,
        files: FileSet,
        labels: str,
        classes: tuple[str, ...],
        photos: list[PlannedPhoto],
        problems: list[Problem],
        changed: Mapping[str, int],
        exif: str | None,
    ) -> None:
        self.name, self.labels, self.classes, self.problems = files.name, labels, classes, tuple(problems)
        self.changed = dict(changed)
        self._files, self._photos, self._exif = files, photos, exif
        self._orientations = np.zeros(len(photos), np.uint8)  # by which boxes are turned; 0: not known yet

    @classmethod
    def open(
        cls,
        source: str | Path | Iterable[str | Path],
        *,
        labels: str = "auto",
        classes: Sequence[str] | None = None,
        listed: str | Sequence[str] | None = None,
        exif: str | None = None,
    ) -> PhotoSet:
        """Open a folder or an uncompressed tar, or several that form one set.

        Args:
            source: The paths; or that of a data.yaml, which names folders.
            labels: Format of the labels: one of `FORMATS`; ``auto``: what the files show; ``none``: photos without labels.
            classes: Names of the classes, in the order of their numbers; None: as the labels have them.
            listed: The photos to take, by files or stems, or the name of a list in the set, or of a part that a data.yaml has. None: all.
            exif: What the labels are drawn on: the photo as it is ``shown``, turned as EXIF says; or its pixels as they are ``stored``.
                None: the sizes in the labels say it; boxes of a photo that EXIF turns are refused where they do not. `check` looks at
                all photos, others only when they are asked for.

        Raises:
            NoDataError: a path does not exist, or there are no photos or labels.
            FormatError: a tar, or the labels of all photos, cannot be read; ``.problems`` has what is wrong with each photo.
            UsageError: there are labels in several formats.
        """
        files = FileSet(source)
        check_exif(exif)
        if labels == "none":
            photos_of_set, labels, classes = (
                [LabelledPhoto(name, np.zeros((0, 5))) for name in PhotoFiles(files).names],
                labels,
                (),
            )
            problems: list[Problem] = []
            left_out = Counter[str]()
        else:
            annotations = read_labels(files, labels=labels, classes=classes, listed=listed, exif=exif)
            photos_of_set, labels, classes = annotations.photos, annotations.format, annotations.classes
            problems, left_out = annotations.problems, annotations.left_out
        photos, more, changed = plan_photos(files, photos_of_set)
        problems = [*problems, *more]
        if problems and not photos:
            shown = "\n".join(f"  {str(problem)[:300]}" for problem in problems[:_SHOWN])
            raise FormatError(
                f"data {files.name!r}: none of the photos can be used:\n{shown}\nDo: correct the labels, or the list of photos",
                problems=tuple(problems),
            )
        if not photos:
            raise NoDataError(f"data {files.name!r}: no photos that can be used were found.", path=files.name)
        return cls(files, labels, tuple(classes), photos, problems, changed + left_out, exif)

    def __len__(self) -> int:
        return len(self._photos)

    def key(self, number: int) -> str:
        """A photo's name, without its suffix."""
        return self._photos[number].key

    def file(self, number: int) -> str:
        """The name of a photo's file in the set."""
        return self._photos[number].file

    def check(self) -> list[Problem]:
        """Read the heads of all photos; returns those whose labels are for another size, or lack the size they refer to."""

        def problem(number: int) -> Problem | None:
            try:
                self._orientation(number)
            except FormatError as error:
                return Problem(self.file(number), str(error.__cause__ or error))
            return None

        problems = map_ahead(problem, range(len(self)), threads=threads_for_files(), ahead=64)
        return [found for found in problems if found is not None]

    def boxes(self, number: int) -> npt.NDArray[np.float32]:
        """A photo's boxes on the upright photo; see `Example`. The head of the file is read, once.

        Raises:
            FormatError: its labels are for another size, or do not say what they are drawn on.
        """
        return turn_boxes(self._photos[number].boxes, self._orientation(number))

    def read(self, number: int) -> Example:
        """Read a photo with its boxes.

        Raises:
            IndexError: there is none of this number.
            FormatError: the file is too large, its tar is truncated, or its labels are for another size, or do not say what they are drawn
                on.
            OSError: it cannot be read.
        """
        photo = self._photos[number]
        image = self._files.read(photo.file, MAX_FILE_BYTES)
        return Example(photo.key, image, turn_boxes(photo.boxes, self._orientation(number, image)))

    def _orientation(self, number: int, image: bytes | None = None) -> int:
        """The EXIF orientation by which a photo's boxes are rotated."""
        if not self._orientations[number]:
            self._orientations[number] = self._find_orientation(self._photos[number], image)
        return int(self._orientations[number])

    def _find_orientation(self, photo: PlannedPhoto, image: bytes | None) -> int:
        if photo.size is None and (self._exif == "shown" or not len(photo.boxes)):
            return 1
        try:
            header = read_file_header(self._files, photo.file) if image is None else read_header(image, photo.file)
        except ImageError:  # decoding has the error
            return 1
        try:
            return label_orientation(header, photo.size, self._exif, photo.boxes)
        except FormatError as error:
            raise FormatError(f"photo {photo.file}: {error}", path=photo.file) from error


def open_photos(source: str | Path, labels: str = "auto", exif: str | None = None) -> Shards | PhotoSet:
    """A set of shards, where the folder is one, else photos with their labels. ``exif`` is that of `PhotoSet.open`, and not for shards.

    Raises:
        NoDataError: nothing is there, or no labels; ``.path`` says where.
        FormatError: what is there is damaged.
        UsageError: there are labels in several formats.
    """
    if os.path.lexists(Path(source) / NAME):
        return Shards.open(source)
    return PhotoSet.open(source, labels=labels, exif=exif)
