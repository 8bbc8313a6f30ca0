"""What readers of labels give, whichever format they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["PHOTO_SUFFIXES", "Annotations", "ClassNumbers", "LabelledPhoto", "Problem", "Wanted"]

PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm")


@dataclass(frozen=True)
class Problem:
    """Something that keeps a photo from being used.

    Attributes:
        file: Of the photo or of its labels.
        what: Is wrong.
    """

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass(frozen=True)
class LabelledPhoto:
    """A photo's boxes, as the labels have them.

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
    """The labels of a set.

    Attributes:
        format: Name of the format.
        classes: Names, in the order of their numbers.
        photos: Each once.
        problems: What cannot be used.
        left_out: How many boxes or other things were left out on purpose, by the reason.
    """

    format: str
    classes: tuple[str, ...]
    photos: list[LabelledPhoto] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


class ClassNumbers:
    """The numbers of classes: of a list that is given, or of the names that are found, in the order of the alphabet.

    Args:
        known: The list; None: what is found.
    """

    def __init__(self, known: Sequence[str] | None) -> None:
        self._known = known is not None
        self._numbers = {name: number for number, name in enumerate(known or ())}

    def number(self, name: str) -> int | None:
        """Of a name; None where it is not in the list."""
        if not self._known:
            self._numbers.setdefault(name, len(self._numbers))
        return self._numbers.get(name)

    def finish(self, photos: Iterable[LabelledPhoto]) -> tuple[str, ...]:
        """The names in their order; the boxes get their final numbers."""
        names = tuple(self._numbers)
        if self._known or not names:
            return names
        order = tuple(sorted(names))
        final = np.array([order.index(name) for name in names], np.float64)
        for photo in photos:
            photo.boxes[:, 0] = final[photo.boxes[:, 0].astype(np.int64)]
        return order


class Wanted:
    """The photos that a list names, by their files or by their stems; all, where there is no list."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self._names = None if names is None else dict.fromkeys(names, False)

    def __contains__(self, file: object) -> bool:
        if self._names is None:
            return True
        name = str(file)
        stem = name.rpartition("/")[2].rpartition(".")[0]
        found = [each for each in (name, name.rpartition("/")[2], stem) if each in self._names]
        for each in found:
            self._names[each] = True
        return bool(found)

    def missing(self) -> list[Problem]:
        """The names for which there was no photo with labels."""
        return [
            Problem(name, "the list names it, but there is no such photo with labels")
            for name, seen in (self._names or {}).items()
            if not seen
        ]
