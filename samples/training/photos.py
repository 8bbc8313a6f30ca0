"""Decode photos to pixels, and handle those that do not decode."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from pytrtplugins.errors import ImageError
from pytrtplugins.vision.image import decode_image

from .sampler import StepSampler

__all__ = ["Photos", "Pixels", "Records", "decode", "fitted_size", "shrink"]

Pixels = npt.NDArray[np.uint8]
MOST_TRIES = 100  # photos one behind the other that do not decode
_MOST_KEPT = 1 << 26  # bytes of memory that a thread keeps to decode into
_kept = threading.local()


class Record(Protocol):
    """Interface of a record, such as `pytrtplugins.mlops.shards.Example`."""

    key: str
    image: bytes
    boxes: npt.NDArray[np.float32]
    """(M, 5): class, then centre x, centre y, width and height as shares of the photo's width and height."""


class Records(Protocol):
    """Interface of a set, such as `pytrtplugins.mlops.shards.Shards`: random access from any thread."""

    def __len__(self) -> int: ...

    def read(self, number: int) -> Any:
        """Read a `Record`."""


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

    The photo is turned upright as EXIF says: its boxes are those of the upright photo.

    Raises:
        ImageError: The file cannot be decoded.
    """

    def memory(size: int) -> Pixels:  # what has more pixels than the square is shrunk, so its memory can be used again
        return _memory(size) if 3 * side**2 < size <= _MOST_KEPT else np.empty(size, np.uint8)

    pixels = decode_image(image, key, memory=memory)
    if max(pixels.shape[:2]) <= side:
        return pixels
    # turned by NumPy: PyTorch lets go of Python's lock in each call, and then waits for it
    planes = torch.from_numpy(pixels.reshape(1, *pixels.shape).transpose(0, 3, 1, 2))
    return shrink(planes, side).numpy()[0].transpose(1, 2, 0)


def _memory(size: int) -> Pixels:
    """A buffer of this thread, which is reused: new memory would cost page faults, which serialize threads."""
    if getattr(_kept, "memory", None) is None or len(_kept.memory) < size:
        _kept.memory = np.empty(size, np.uint8)
    return _kept.memory[:size]


def shrink(planes: Tensor, side: int) -> Tensor:
    """Shrink photos of one size to fit into a square; on the CPU equal to Pillow's BICUBIC within 1.

    Args:
        planes: (N, 3, height, width) uint8, on any device.
        side: Of the square. What fits is given back as it is.
    """
    height, width = planes.shape[2:]
    if max(height, width) <= side:
        return planes
    new_width, new_height = fitted_size(width, height, side)
    on_cpu = planes.device.type == "cpu"  # elsewhere there is no kernel for uint8
    small = functional.interpolate(
        planes if on_cpu else planes.float(), (new_height, new_width), mode="bicubic", antialias=True
    )
    return small if on_cpu else small.round().clamp(0, 255).byte()


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
        """Decode a row's photo; with ``skip_bad``, the first one from there on that decodes, with its record.

        Raises:
            ImageError: The photo does not decode; or, with ``skip_bad``, none of many does.
        """
        return self.first_good(record, lambda tries: self.sampler.after(step, row, tries))

    def first_good(self, record: Any, number_of: Callable[[int], int]) -> tuple[Any, Pixels]:
        """The first photo that decodes: the given record, or one of the next, whose numbers ``number_of`` returns.

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
        """The error with the path of the photo, if the set knows it."""
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
