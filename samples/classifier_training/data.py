"""Photos of one class each: of folders named after classes, of shards, or drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytrtplugins.errors import NoDataError
from pytrtplugins.mlops.shards import Example
from training.data import ALL, Records, changes, open_data

__all__ = ["SYNTHETIC", "Classes", "Drawn", "open_classes"]

SYNTHETIC = "synthetic"
"""The name of a set that is drawn."""
_DRAWN, _DRAWN_CLASSES, _SIDE = 1024, 1000, 256


class Classes:
    """The photos of a set that show one class; the box of each becomes one around the whole photo.

    Args:
        data: Photos with boxes.

    Raises:
        NoDataError: there are fewer than two classes, or no photo shows one class.
    """

    def __init__(self, data: Records) -> None:
        kinds = [np.unique(data.boxes(number)[:, 0]) for number in range(len(data))]
        self.classes, self._data = data.classes, data
        self._numbers = [number for number, kind in enumerate(kinds) if len(kind) == 1]
        self._kinds = [int(kinds[number][0]) for number in self._numbers]
        others = len(kinds) - len(self._numbers)
        self.changed = {**changes(data), "photos with no class or several, left out": others}
        self.digest = getattr(data, "digest", "")
        if not self._numbers or len(self.classes) < 2:
            raise NoDataError(
                f"training data: {len(self._numbers):,} photos of one class, {len(self.classes)} classes.\n"
                "Do: give a folder with a folder of photos for each of two classes or more"
            )

    def __len__(self) -> int:
        return len(self._numbers)

    def boxes(self, number: int) -> npt.NDArray[np.float32]:
        """The class of a photo, as a box."""
        return np.array([[self._kinds[number], 0.5, 0.5, 1, 1]], np.float32)

    def read(self, number: int) -> Example:
        """A photo and its class."""
        return replace(self._data.read(self._numbers[number]), boxes=self.boxes(number))


class Drawn:
    """A thousand JPEG files of noise, of a thousand classes: what a step costs, without a set of photos."""

    def __init__(self) -> None:
        self.classes = tuple(f"class {number}" for number in range(_DRAWN_CLASSES))
        self.digest = SYNTHETIC

    def __len__(self) -> int:
        return _DRAWN

    def boxes(self, number: int) -> npt.NDArray[np.float32]:
        """The class of a photo, as a box."""
        return np.array([[number % _DRAWN_CLASSES, 0.5, 0.5, 1, 1]], np.float32)

    def read(self, number: int) -> Example:
        """A photo, the same one each time, and its class."""
        coarse = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(coarse).resize((_SIDE, _SIDE)).save(file, "JPEG")
        return Example(f"drawn {number}", file.getvalue(), self.boxes(number))


def open_classes(paths: Sequence[str], listed: str = ALL) -> Records:
    """Open a set: ``synthetic``; a folder of shards; or a folder with a folder of photos for each class.

    Raises:
        NoDataError: a path or the list is missing, or there are fewer than two classes.
        UsageError: photos of several parts, such as ``train`` and ``val``, would come into one set.
    """
    if list(paths) == [SYNTHETIC]:
        return Drawn()
    return Classes(open_data(paths, listed, labels="folders"))
