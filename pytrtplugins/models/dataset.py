"""Read data sets of labelled images in the YOLO layout, in folders or tars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, ImageError, NoDataError
from ..utils.file_set import FileSet
from ..vision.image import MAX_FILE_BYTES, decode_image, turn_boxes
from ..vision.labels.darknet import LabelFiles, class_names, parse_rows
from ..vision.labels.parts import part_photos
from ..vision.labels.photo import check_exif, label_orientation, read_file_header
from ..vision.labels.photo_files import PhotoFiles

__all__ = ["YoloData"]


class YoloData:
    """A data set: images, labels (a text file an image), ``classes.txt`` and lists such as ``val.txt``.

    An image's labels are in the folder ``labels`` that stands for its folder ``images`` or ``JPEGImages``, or beside
    it; docs/how-to/shards.md has
    the whole rule. A label's line is ``class centre-x centre-y width height``, in 0..1 of the image; an image without objects has an empty
    file or none. Tars are read in place, never extracted; a folder that holds tars instead of ``images/`` works too. A data.yaml of
    Roboflow or Ultralytics may name the classes and the images of ``train``, ``val`` and ``test``.

    Args:
        source: A folder, a tar or a data.yaml, or several that together make one set.
        exif: What the labels are drawn on: the image as it is ``shown``, turned as EXIF says, as :meth:`image` gives it; or its pixels as
            they are ``stored``. None: boxes of an image that EXIF turns are refused, since such labels do not say it.

    Raises:
        NoDataError: a path does not exist, or the names of the classes are missing.
        FormatError: a tar or the names of the classes cannot be read.
    """

    def __init__(self, source: str | Path | Iterable[str | Path], *, exif: str | None = None) -> None:
        self.exif = check_exif(exif)
        self.files = FileSet(source)
        self.name = self.files.name
        self.classes = class_names(self.files) or ()
        if not self.classes:
            raise NoDataError(
                f"data {self.name!r}: the names of the classes are missing: expected classes.txt, a file .names, or data.yaml.\n"
                "Do: write classes.txt into it, one name a line",
                path=self.name,
            )
        self._photos = PhotoFiles(self.files)
        self._labels = LabelFiles(self.files, self._photos)

    def images(self, split: str = "val.txt") -> list[str]:
        """Return the names of the images of a list or a data.yaml's split, such as ``images/2009_003804.jpg``.

        Raises:
            NoDataError: the list is missing or empty, or names an image that is missing.
            FormatError: the list names one of several images, or parts of the data have other images of one name.
        """
        names = part_photos(self.files, self._photos, split)
        for name in names:
            self.files.check_alone(name, MAX_FILE_BYTES)
        return names

    def check_labels(self, names: Sequence[str]) -> None:
        """Raise an error if none of the images has a label file.

        Raises:
            NoDataError: none has; ``.folders`` are those that were looked at.
        """
        self._labels.require(names)

    def image(self, name: str) -> npt.NDArray[np.uint8]:
        """Read an image as (H, W, 3) uint8, RGB.

        Raises:
            NoDataError: it is missing.
            ImageError: it cannot be decoded.
        """
        return decode_image(self.files.read(name, MAX_FILE_BYTES), name)

    def boxes(self, name: str) -> npt.NDArray[np.float64]:
        """Read an image's objects: rows of class, centre x, centre y, width, height; the last four in 0..1 of the upright image.

        Raises:
            FormatError: a line is broken or names a class that does not exist, several files may be the labels, or the labels do not say
                whether they are drawn on the image as EXIF has it turned.
        """
        try:
            label = self._labels.of(name)
        except ValueError as error:
            raise FormatError(f"data {self.name!r}: {error}.\nDo: rename or remove one of them", path=name) from error
        if label is None:
            return np.zeros((0, 5))
        try:
            rows = parse_rows(self.files.text(label), len(self.classes))
        except FormatError as error:
            where = f"data {self.name!r}: {label} "
            raise FormatError(f"{where}{error}.", path=label, line=getattr(error, "line", None)) from error
        boxes = np.array(rows, np.float64).reshape(-1, 5)
        if self.exif == "shown" or not len(boxes):
            return boxes
        try:
            return turn_boxes(boxes, label_orientation(read_file_header(self.files, name), None, self.exif, boxes))
        except ImageError:  # decoding has the error
            return boxes
        except FormatError as error:
            raise FormatError(f"data {self.name!r}: {name}: {error}.", path=name) from error
