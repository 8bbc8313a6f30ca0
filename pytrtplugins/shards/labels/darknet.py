"""darknet's labels, also called the YOLO layout: a .txt beside each photo, or in ``labels/`` where the photo is in ``images/``."""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np

from ...errors import FormatError, NoDataError
from ...utils.file_set import FileSet
from ...utils.text_formats import shorten
from .annotations import OTHER_CLASSES, Annotations, ClassNumbers, LabelledPhoto, Problem, Wanted, rows_of
from .photo_files import PhotoFiles

__all__ = ["NAME", "label_file", "read", "recognize"]

NAME = "darknet"
_CLASS_FILES = ("classes.txt", "labels/classes.txt", "obj.names", "data/obj.names")


def recognize(files: FileSet, photos: PhotoFiles) -> str:
    """Why these files are of this format; empty where they are not."""
    labelled = sum(label_file(name) in files for name in photos.names)
    return f"{labelled:,} .txt files for {len(photos.names):,} photos" if labelled else ""


def read(files: FileSet, photos: PhotoFiles, numbers: ClassNumbers, wanted: Wanted) -> Annotations:
    """Read the labels of all photos; a photo without a file has no boxes."""
    found = Annotations(NAME)
    names = _classes(files)
    if names is None and not numbers.given:
        raise NoDataError(
            f"data {files.name!r}: the names of the classes are missing: expected classes.txt or a file .names.\n"
            "Do: give them with --classes FILE, one name a line",
            path=files.name,
        )
    numbers.declare(names or ())
    for photo in photos.names:
        label = label_file(photo)
        if photo not in wanted:
            continue
        try:
            rows = _rows(files.text(label), names, numbers) if label in files else []
            boxes = rows_of([row for row in rows if row is not None])
        except (FormatError, ValueError) as error:
            found.problems.append(Problem(label, str(error)))
            continue
        found.photos.append(LabelledPhoto(photo, boxes))
        found.left_out[OTHER_CLASSES] += rows.count(None)
        found.left_out["photos without a label file: no boxes"] += label not in files
    return found


def label_file(photo: str) -> str:
    """The label file of a photo: the last folder ``images`` becomes ``labels``, as in darknet and its successors."""
    path = PurePosixPath(photo)
    parts = list(path.parts[:-1])
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return str(PurePosixPath(*parts, path.stem + ".txt"))


def _classes(files: FileSet) -> tuple[str, ...] | None:
    """The names that the set has; None where it has none."""
    others = sorted(name for name in files if name.endswith(".names") and "/" not in name)
    place = next((name for name in (*_CLASS_FILES, *others) if name in files), None)
    return None if place is None else tuple(files.lines(place))


def _rows(text: str, names: tuple[str, ...] | None, numbers: ClassNumbers) -> list[tuple[float, ...] | None]:
    """Class, left, top, right, bottom of each line; None where the class is left out.

    Raises:
        ValueError: a line is broken; the message says which.
    """
    rows: list[tuple[float, ...] | None] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            values = [float(word) for word in line.split()]
        except ValueError:
            values = []
        if len(values) != 5 or not np.isfinite(values).all():
            raise ValueError(f"line {number}: expected 'class x y width height', found {shorten(line)}")
        known = numbers.count if names is None else len(names)
        if values[0] not in range(known):
            raise ValueError(f"line {number}: unknown class {values[0]:g}; there are {known}, from 0 on")
        kind = int(values[0]) if names is None else numbers.number(names[int(values[0])])
        _, x, y, width, height = values
        corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        rows.append(None if kind is None else (kind, *corners))
    return rows
