"""darknet's labels, also called the YOLO layout: a .txt beside each photo, or in ``labels/`` where the photo is in ``images/``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from ...errors import FormatError, NoDataError
from ...utils.file_set import FileSet
from .annotations import PHOTO_SUFFIXES, Annotations, LabelledPhoto, Problem, Wanted

__all__ = ["NAME", "read", "recognize"]

NAME = "darknet"
_CLASS_FILES = ("classes.txt", "labels/classes.txt", "obj.names", "data/obj.names")


def recognize(files: FileSet) -> str:
    """Why these files are of this format; empty where they are not."""
    photos = [name for name in files if name.lower().endswith(PHOTO_SUFFIXES)]
    labelled = sum(label_file(name) in files for name in photos)
    return f"{labelled:,} .txt files beside {len(photos):,} photos" if labelled else ""


def read(files: FileSet, classes: Sequence[str] | None, wanted: Wanted) -> Annotations:
    """Read the labels of all photos; a photo without a file has no boxes."""
    found = Annotations(NAME, tuple(classes) if classes is not None else _classes(files))
    for photo in sorted(name for name in files if name.lower().endswith(PHOTO_SUFFIXES) and name in wanted):
        label = label_file(photo)
        if label not in files:
            found.left_out["photos without a label file: no boxes"] += 1
            found.photos.append(LabelledPhoto(photo, np.zeros((0, 5))))
            continue
        try:
            found.photos.append(LabelledPhoto(photo, _boxes(files.text(label), len(found.classes))))
        except (FormatError, ValueError) as error:
            found.problems.append(Problem(label, str(error)))
    return found


def label_file(photo: str) -> str:
    """The label file of a photo: the last folder ``images`` becomes ``labels``, as in darknet and its successors."""
    path = PurePosixPath(photo)
    parts = list(path.parts[:-1])
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return str(PurePosixPath(*parts, path.stem + ".txt"))


def _classes(files: FileSet) -> tuple[str, ...]:
    names = [name for name in files if name.endswith(".names") and "/" not in name]
    place = next((name for name in (*_CLASS_FILES, *sorted(names)) if name in files), None)
    if place is None:
        raise NoDataError(
            f"data {files.name!r}: the names of the classes are missing: expected classes.txt or a file .names.\n"
            "Do: give them with --classes FILE, one name a line",
            path=files.name,
        )
    return tuple(files.lines(place))


def _boxes(text: str, classes: int) -> npt.NDArray[np.float64]:
    """Rows of class, left, top, right, bottom.

    Raises:
        ValueError: a line is broken; the message says which.
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
            raise ValueError(f"line {number}: expected 'class x y width height', found {line[:80]!r}")
        if values[0] not in range(classes):
            raise ValueError(f"line {number}: unknown class {values[0]:g}; there are {classes}, from 0 on")
        kind, x, y, width, height = values
        rows.append((kind, x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    return np.array(rows, np.float64).reshape(-1, 5)
