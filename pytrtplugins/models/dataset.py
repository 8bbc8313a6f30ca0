"""Labelled images in the YOLO layout, in folders or tars."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, NoDataError
from ..utils.file_set import FileSet
from ..vision.image import MAX_FILE_BYTES, decode_image

__all__ = ["YoloData"]


class YoloData:
    """A data set: ``images/``, ``labels/`` (one text file an image), ``classes.txt`` and lists such as ``val.txt``.

    A label's line is ``class centre-x centre-y width height``, in 0..1 of the image; an image without objects has an empty
    file or none. Tars are read in place, never extracted; a folder that holds tars instead of ``images/`` works too.

    Args:
        source: A folder or a tar, or several that together make one set.

    Raises:
        NoDataError: a path does not exist, or ``classes.txt`` is missing.
        FormatError: a tar cannot be read.
    """

    def __init__(self, source: str | Path | Iterable[str | Path]) -> None:
        self.files = FileSet(source)
        self.name = self.files.name
        self.classes = tuple(self.files.lines("classes.txt"))
        if not self.classes:
            raise NoDataError(f"data {self.name!r}: classes.txt names no class.", path=self.name)

    def images(self, split: str = "val.txt") -> list[str]:
        """Names of the images that a list holds, such as ``images/2009_003804.jpg``.

        Raises:
            NoDataError: the list is missing or empty.
        """
        names = self.files.lines(split)
        if not names:
            raise NoDataError(f"data {self.name!r}: the list {split} is empty.")
        return names

    def image(self, name: str) -> npt.NDArray[np.uint8]:
        """The image as (H, W, 3) uint8, RGB.

        Raises:
            NoDataError: it is missing.
            ImageError: it cannot be decoded.
        """
        return decode_image(self.files.read(name, MAX_FILE_BYTES), name)

    def boxes(self, name: str) -> npt.NDArray[np.float64]:
        """The image's objects: rows of class, centre x, centre y, width, height; the last four in 0..1.

        Raises:
            FormatError: a line is broken or names a class that does not exist.
        """
        path = PurePosixPath(name)
        parts = ["labels" if part == "images" else part for part in path.parts[:-1]]
        label = str(PurePosixPath(*parts, path.stem + ".txt"))
        if label not in self.files:
            return np.zeros((0, 5))
        rows = [
            self._row(label, number, line)
            for number, line in enumerate(self.files.text(label).splitlines(), 1)
            if line.strip()
        ]
        return np.array(rows, np.float64).reshape(-1, 5)

    def _row(self, name: str, number: int, line: str) -> list[float]:
        try:
            values = [float(word) for word in line.split()]
        except ValueError:
            values = []
        if len(values) != 5 or not np.isfinite(values).all() or values[0] not in range(len(self.classes)):
            raise FormatError(
                f"data {self.name!r}: {name} line {number}: expected 'class x y w h' with a class from 0 to "
                f"{len(self.classes) - 1}, found {line[:80]!r}.",
                path=name,
                line=number,
            )
        return values
