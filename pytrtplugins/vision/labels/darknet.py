"""Reader of darknet labels, also called the YOLO layout: a .txt for each photo, next to it or in a folder ``labels``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from ...errors import FormatError, NoDataError
from ...utils.file_set import FileSet
from ...utils.listing import first_texts
from ...utils.name_list import check_class_names, split_lines
from ...utils.text_formats import shorten
from .annotations import OTHER_CLASSES, Annotations, ClassNumbers, LabelledPhoto, PhotoFilter, Problem, rows_of
from .pairing import AmbiguousError, Pairs
from .photo_files import PhotoFiles

__all__ = ["NAME", "LabelFiles", "class_names", "label_file", "parse_rows", "read", "recognize"]

NAME = "darknet"
_CLASS_FILES = ("classes.txt", "labels/classes.txt", "obj.names", "data/obj.names")
_IMAGE_FOLDERS = ("images", "JPEGImages")
_SHOWN = 6  # folders in a message


class LabelFiles:
    """Label files of the photos of a data set, found by the rule of `Pairs`.

    Attributes:
        photos: The photos of the set.
    """

    def __init__(self, files: FileSet, photos: PhotoFiles) -> None:
        self.photos, self._files = photos, files
        stems = {PurePosixPath(name).stem for name in photos.names}
        self._texts = [name for name in files if name.endswith(".txt") and PurePosixPath(name).stem in stems]
        self._pairs = Pairs(photos.names, self._texts)

    def __len__(self) -> int:
        """Return the number of label files with the name of a photo."""
        return len(self._texts)

    def of(self, photo: str) -> str | None:
        """Return the label file of a photo; None if there is none.

        Raises:
            AmbiguousError: there are several, or it may be that of another photo.
        """
        return self._pairs.labels_of(photo)

    def require(self, photos: Sequence[str]) -> None:
        """Raise an error if none of the photos has a label file.

        Raises:
            NoDataError: none has; ``.folders`` are those that were looked at.
        """
        folders: dict[str, None] = {}
        for photo in photos:
            try:
                if self.of(photo) is not None:
                    return
            except AmbiguousError:
                return
            folders |= dict.fromkeys(str(PurePosixPath(name).parent) for name in (label_file(photo), photo))
        if folders:
            shown = first_texts([f"{folder}/" for folder in folders], _SHOWN)
            raise NoDataError(
                f"data {self._files.name!r}: none of {len(photos):,} photos has labels: looked for NAME.txt in {shown}, and "
                "in all other folders for files with the name of a photo.\n"
                "Do: put the labels into the first of these folders; photos without an object may have an empty file",
                path=self._files.name,
                folders=tuple(folders),
            )


def recognize(files: FileSet, photos: PhotoFiles) -> str:
    """Return the evidence that the files are of this format; empty if they are not."""
    labels = LabelFiles(files, photos)
    return f"{len(labels):,} .txt files for {len(photos.names):,} photos" if len(labels) else ""


def read(files: FileSet, photos: PhotoFiles, numbers: ClassNumbers, wanted: PhotoFilter) -> Annotations:
    """Read the labels of all photos; a photo without a file has no boxes.

    Raises:
        NoDataError: no photo has a file, or the names of the classes are missing.
    """
    result, labels = Annotations(NAME), LabelFiles(files, photos)
    names = class_names(files)
    if names is None and not numbers.given:
        raise NoDataError(
            f"data {files.name!r}: the names of the classes are missing: expected classes.txt, a file .names, or data.yaml.\n"
            "Do: give them with --names FILE, one name a line",
            path=files.name,
        )
    numbers.declare(names or ())
    listed = [photo for photo in photos.names if photo in wanted]
    labels.require(listed)
    for photo in listed:
        label = None
        try:
            label = labels.of(photo)
            rows = parse_rows(files.text(label), numbers.count if names is None else len(names)) if label else []
            numbers_of_boxes = [numbers.number(names[int(row[0])]) if names else int(row[0]) for row in rows]
            boxes = [(kind, *row[1:]) for kind, row in zip(numbers_of_boxes, rows, strict=True) if kind is not None]
            result.photos.append(LabelledPhoto(photo, _corners(rows_of(boxes))))
        except (FormatError, ValueError) as error:
            result.problems.append(Problem(label or photo, str(error).removeprefix(f"{photo}: ")))
            continue
        result.left_out[OTHER_CLASSES] += numbers_of_boxes.count(None)
        result.left_out["photos without a label file: no boxes"] += label is None
    return result


def label_file(photo: str) -> str:
    """Return the path at which darknet expects the labels: the last folder ``images`` or ``JPEGImages`` becomes ``labels``."""
    path = PurePosixPath(photo)
    parts = list(path.parts[:-1])
    last = max((number for number, part in enumerate(parts) if part in _IMAGE_FOLDERS), default=None)
    if last is not None:
        parts[last] = "labels"
    return str(PurePosixPath(*parts, path.stem + ".txt"))


def class_names(files: FileSet) -> tuple[str, ...] | None:
    """Return the class names of a data set, in the order of their numbers; None if it has none.

    Raises:
        FormatError: a name is blank, or appears twice; or there are two files, with other names.
    """
    names_files = sorted(name for name in files if name.endswith(".names") and "/" not in name)
    class_files = [name for name in (*_CLASS_FILES, *names_files) if name in files]
    names = {}
    for file in dict.fromkeys(class_files):
        lines = split_lines(files.text(file))
        try:
            names[file] = check_class_names(lines, once=True)
        except ValueError as error:
            raise FormatError(f"data {files.name!r}: {file}: {error}.\nDo: correct it", path=file) from error
    if files.description is not None:
        names[files.description.file] = files.description.classes
    if len(set(names.values())) > 1:
        raise FormatError(
            f"data {files.name!r}: {' and '.join(names)} name other classes.\nDo: remove the wrong one", path=files.name
        )
    return next(iter(names.values()), None)


def parse_rows(text: str, classes: int) -> list[list[float]]:
    """Parse label lines to rows of class, centre x, centre y, width and height.

    Raises:
        FormatError: a line is broken, or names a class that does not exist; ``.line`` says which.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            values = [float(word) for word in line.split()]
        except ValueError:
            values = []
        if len(values) != 5 or not np.isfinite(values).all():
            problem = f"expected 'class x y width height', found {shorten(line)}"
        elif values[0] not in range(classes):
            problem = f"unknown class {values[0]:g}; there are {classes}, from 0 on"
        else:
            rows.append(values)
            continue
        raise FormatError(f"line {number}: {problem}", line=number)
    return rows


def _corners(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Convert (M, 5) boxes of class, centre and size to class, left, top, right, bottom."""
    centres, halves = boxes[:, 1:3], boxes[:, 3:] / 2
    return np.concatenate([boxes[:, :1], centres - halves, centres + halves], 1)
