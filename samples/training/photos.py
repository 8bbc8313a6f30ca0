"""A photo's bytes to its pixels, and what is done with those that do not decode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pytrtplugins.errors import ImageError
from pytrtplugins.utils.optional import require
from pytrtplugins.vision.image import decode_image

from .sampler import StepSampler

__all__ = ["Photos", "Pixels", "Records", "decode", "fitted_size"]

Pixels = npt.NDArray[np.uint8]
MOST_TRIES = 100  # photos one behind the other that do not decode


class Record(Protocol):
    """A photo of the set, as `pytrtplugins.shards.Example` is."""

    key: str
    image: bytes
    boxes: npt.NDArray[np.float32]
    """(M, 5): class, then centre x, centre y, width and height as shares of the photo's width and height."""


class Records(Protocol):
    """The set, as `pytrtplugins.shards.Shards` is: any photo at any time, from any thread."""

    def __len__(self) -> int: ...

    def read(self, number: int) -> Any:
        """A `Record`."""


def fitted_size(width: int, height: int, side: int) -> tuple[int, int]:
    """Width and height of a photo that is shrunk, if it is larger than a square; the rounding is Pillow's."""
    if max(width, height) <= side:
        return width, height
    if width >= height:
        return side, _nearest(side * height / width, lambda n: abs(width / height - side / n))
    return _nearest(side * width / height, lambda n: abs(width / height - n / side)), side


def _nearest(length: float, error: Callable[[int], float]) -> int:
    return max(1, min((int(length), int(length) + 1), key=lambda n: error(n) if n else 0))


def decode(image: bytes, key: str, side: int) -> Pixels:
    """Decode a file, and shrink what is larger than ``side``: (height, width, 3) uint8, RGB.

    EXIF's orientation is ignored, as darknet ignores it.

    Raises:
        ImageError: The file cannot be decoded.
    """
    pixels = decode_image(image, key, exif=False)
    if max(pixels.shape[:2]) <= side:
        return pixels
    pil = require("PIL.Image", extra="train", package="pillow", feature="training")
    size = fitted_size(pixels.shape[1], pixels.shape[0], side)
    shrunk = pil.fromarray(pixels).resize(size, pil.Resampling.LANCZOS, reducing_gap=2.0)
    return np.asarray(shrunk)


class Photos:
    """The photos of each step, by their rows.

    Args:
        data: The set.
        sampler: Which photos a step gets.
        side: Width and height of the square that photos are shrunk to.
        skip_bad: Replace a photo that does not decode by the next one of the same epoch.
    """

    def __init__(self, data: Records, sampler: StepSampler, side: int, *, skip_bad: bool = False) -> None:
        self.data, self.sampler, self.side, self.skip_bad = data, sampler, side, skip_bad
        self.skipped: dict[int, str] = {}
        """Photos that did not decode: their numbers, and why."""

    def numbers(self, step: int) -> list[int]:
        """The numbers of a step's photos, row by row."""
        return self.sampler.indices(step).tolist()

    def decode(self, step: int, row: int, record: Any) -> tuple[Any, Pixels]:
        """The pixels of a row; with ``skip_bad`` of the first photo from there on that decodes, and its record.

        Raises:
            ImageError: The photo does not decode; or, with ``skip_bad``, none of many does.
        """
        return self.first_good(record, lambda tries: self.sampler.after(step, row, tries))

    def first_good(self, record: Any, number_of: Callable[[int], int]) -> tuple[Any, Pixels]:
        """The first that decodes: the record given, or one of those behind it, whose numbers a function says.

        Raises:
            ImageError: as for :meth:`decode`.
        """
        for tries in range(MOST_TRIES):
            number = number_of(tries)
            if number in self.skipped:
                continue
            if tries:
                record = self.data.read(number)
            try:
                return record, decode(record.image, record.key, self.side)
            except ImageError as error:
                bad = self._named(number, record.key, error)
                if not self.skip_bad:
                    raise bad from error
                self.skipped[number] = str(bad)
        raise ImageError(f"{MOST_TRIES} photos, one behind the other, do not decode. The last: {self.skipped[number]}")

    def _named(self, number: int, key: str, error: ImageError) -> ImageError:
        """The error with the place of the photo, where the set knows it."""
        place, path = f"photo {number:,} of the set", Path(key)
        if locate := getattr(self.data, "locate", None):
            path, offset, size = locate(number)
            place += f", {size:,} bytes at {offset:,} of {path}"
        reason = str(error).split("\nDo:")[0]
        return ImageError(
            f"{key} does not decode ({place}): {reason}\nDo: take it out of the set, or give --skip-bad",
            path=path,
            key=key,
        )
