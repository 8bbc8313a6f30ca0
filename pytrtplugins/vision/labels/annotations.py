"""Results of label readers, and what all formats share: class numbers and the filter of photos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from ...utils.text_formats import shorten

__all__ = [
    "OTHER_CLASSES",
    "PHOTO_SUFFIXES",
    "Annotations",
    "ClassNumbers",
    "LabelledPhoto",
    "PhotoFilter",
    "Problem",
    "UnknownClassError",
    "rows_of",
]

PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm")
OTHER_CLASSES = "boxes of other classes, left out"


@dataclass(frozen=True)
class Problem:
    """A reason why a photo cannot be used.

    Attributes:
        file: The file of the photo or of its labels.
        what: The error.
    """

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass(frozen=True)
class LabelledPhoto:
    """A photo with its boxes.

    Attributes:
        file: Name of the photo in the set.
        boxes: (M, 5) float64: class, left, top, right, bottom; the last four in shares of the photo's sides, which may be outside 0..1.
        size: Width and height in pixels that the labels state; None where they state none.
    """

    file: str
    boxes: npt.NDArray[np.float64]
    size: tuple[int, int] | None = None


@dataclass
class Annotations:
    """The labels of a data set.

    Attributes:
        format: Name of the format.
        photos: Each once.
        problems: What cannot be used.
        left_out: How many boxes or other things were left out on purpose, or are to be known, by what they are.
        classes: Names, in the order of their numbers; once all is read.
    """

    format: str
    photos: list[LabelledPhoto] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    classes: tuple[str, ...] = ()


class UnknownClassError(ValueError):
    """A class is not in the list of classes."""


class ClassNumbers:
    """Class names → numbers: in the order of a given list, or as the labels declare them, or else sorted.

    Args:
        given: The list; None: what the labels have.
        drop: Whether boxes of other classes are left out.
    """

    def __init__(self, given: Sequence[str] | None = None, *, drop: bool = False) -> None:
        self.given, self._drop = given is not None, drop
        self._fixed = self.given
        self._numbers = {name: number for number, name in enumerate(given or ())}

    @property
    def count(self) -> int:
        """The number of classes known so far."""
        return len(self._numbers)

    def declare(self, names: Iterable[str]) -> None:
        """Add the classes that the labels declare, in their order, unless a list was given."""
        if not self.given:
            self._fixed = True
            for name in names:
                self._numbers.setdefault(name, len(self._numbers))

    def number(self, name: str) -> int | None:
        """Return the number of a class; None if its boxes are left out."""
        if not name.strip():
            raise UnknownClassError("a box whose class has no name")
        if not self._fixed:
            self._numbers.setdefault(name, len(self._numbers))
        elif name not in self._numbers and not self._drop:
            raise UnknownClassError(f"unknown class {name[:80]!r}; known are {shorten(list(self._numbers), 200)}")
        return self._numbers.get(name)

    def finish(self, photos: Iterable[LabelledPhoto]) -> tuple[str, ...]:
        """Return the class names in their order, and write final class numbers into the boxes."""
        names = tuple(self._numbers)
        if self._fixed or not names:
            return names
        order = tuple(sorted(names))
        sorted_number = np.array([order.index(name) for name in names], np.float64)
        for photo in photos:
            photo.boxes[:, 0] = sorted_number[photo.boxes[:, 0].astype(np.int64)]
        return order


class PhotoFilter:
    """Filter of photos by a list of names; it accepts all photos if there is no list.

    Args:
        names: Files or their stems; with all folders, with some of the last ones, as the labels may have them, or with more of them than
            the set has, as darknet's lists do. None: all photos.
        resolve: The photo of the set that a name means; None: there is none.
    """

    def __init__(self, names: Iterable[str] | None, resolve: Callable[[str], str | None]) -> None:
        self._all, self._photos, self._missing = names is None, dict[str, str](), dict[str, list[str]]()
        self.problems: list[Problem] = []
        for name in dict.fromkeys(names or ()):
            try:
                photo = resolve(name)
            except ValueError as error:
                self.problems.append(Problem(name[:200], f"the list names it: {error}"))
                continue
            if photo is None:
                self._missing.setdefault(_path(name).name, []).append(name)
            else:
                self._photos[photo] = name
        self._seen: set[str] = set()

    def __contains__(self, file: object) -> bool:
        """Return whether the list has a photo; also for a name of which the set has no photo."""
        if self._all:
            return True
        if file in self._photos:
            self._seen.add(str(file))
            return True
        path = _path(str(file))
        return any(
            _is_end(_path(name), form)
            for form in ((path, path.with_suffix("")) if path.name else ())
            for name in self._missing.get(form.name, ())
        )

    def unused(self) -> list[Problem]:
        """Return a problem for each name that is ambiguous, or that no photo with labels has."""
        what = "the list names it, but there is no such photo with labels"
        missing = [name for names in self._missing.values() for name in names]
        missing += [name for photo, name in self._photos.items() if photo not in self._seen]
        return [*self.problems, *(Problem(name[:200], what) for name in missing)]


def _path(name: str) -> PurePosixPath:
    return PurePosixPath(name.replace("\\", "/"))


def _is_end(one: PurePosixPath, other: PurePosixPath) -> bool:
    """Return whether one of two paths ends with the other."""
    count = min(len(one.parts), len(other.parts))
    return one.parts[-count:] == other.parts[-count:]


def rows_of(rows: Sequence[Sequence[float]], size: tuple[int, int] = (1, 1)) -> npt.NDArray[np.float64]:
    """Convert rows of class and corners in pixels to the boxes of `LabelledPhoto`, (M, 5), in shares of the photo's sides.

    Raises:
        ValueError: a number is not finite.
    """
    boxes = np.array(rows, np.float64).reshape(-1, 5)
    if not np.isfinite(boxes).all():
        raise ValueError("a box has a corner that is not a finite number")
    boxes[:, 1:] /= (*size, *size)
    return boxes
