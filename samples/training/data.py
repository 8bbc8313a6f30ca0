"""Labelled photos as sets of records, from shards or from folders and tars; and the held-out split."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from pytrtplugins.errors import FormatError, NoDataError, UsageError
from pytrtplugins.mlops.shards import Example, PhotoSet, Shards
from pytrtplugins.mlops.shards.manifest import NAME as MANIFEST

from .batch import Pool
from .loader import Options, make_loader
from .sampler import StepSampler

__all__ = [
    "ALL",
    "SIDE",
    "TRAINING",
    "Labelled",
    "Part",
    "Records",
    "changes",
    "hold_back",
    "load_photos",
    "open_data",
    "split",
]

ALL = "all"
"""The list that names every photo."""
SIDE = 352
"""Longer side of a stored photo, in pixels, unless another is asked for."""
TRAINING = "train.txt"
"""The list of the photos to train on."""


class Records(Protocol):
    """A set of photos with random access from any thread."""

    classes: tuple[str, ...]

    def __len__(self) -> int: ...

    def boxes(self, number: int) -> npt.NDArray[np.float32]:
        """A photo's boxes, without its pixels."""

    def read(self, number: int) -> Example:
        """Read a photo and its boxes."""


class Labelled:
    """The photos of a list, in folders and tars with labels; see `read_labels` for the formats.

    Args:
        paths: Folders and tars with photos, labels and lists; or a data.yaml.
        listed: Name of the list, such as ``train.txt``, or of a part of a data.yaml; ``all``: every photo.
        labels: Format of the labels; ``auto``: what the files show.
        exif: What the labels are drawn on where their sizes do not say it; see `PhotoSet.open`.

    Raises:
        NoDataError: the list is missing, or names no photo.
        FormatError: labels cannot be used; ``.problems`` has all of them.
    """

    def __init__(self, paths: Sequence[Path], listed: str, labels: str = "auto", exif: str | None = None) -> None:
        self._photos = PhotoSet.open(paths, listed=None if listed == ALL else listed, labels=labels, exif=exif)
        self.classes, self.changed = self._photos.classes, self._photos.changed
        if problems := (*self._photos.problems, *self._photos.check()):
            shown = "\n".join(map(str, problems[:10]))
            raise FormatError(
                f"data {self._photos.name!r}: {len(problems)} photos of {listed} cannot be used:\n{shown}\n"
                "Do: repair their labels, give --exif where that is asked for, or take them out of the list",
                problems=problems,
            )
        digest = hashlib.sha256(repr(self.classes).encode())
        for number in range(len(self._photos)):
            boxes = self._photos.boxes(number)
            digest.update(
                self._photos.file(number).encode() + boxes.astype("<f8").tobytes() + len(boxes).to_bytes(8, "little")
            )
        self.digest = digest.hexdigest()
        """Of the photos' names and their labels."""

    def __len__(self) -> int:
        return len(self._photos)

    def boxes(self, number: int) -> npt.NDArray[np.float32]:
        """A photo's boxes, cut at its borders; those without an area in it are left out."""
        return self._photos.boxes(number)

    def read(self, number: int) -> Example:
        """Read a photo and its boxes."""
        return replace(self._photos.read(number), key=self._photos.file(number))


class Part:
    """A subset of a set."""

    def __init__(self, data: Records, numbers: Sequence[int]) -> None:
        self.classes, self._data, self._numbers = data.classes, data, numbers
        self.digest = getattr(data, "digest", "")

    def __len__(self) -> int:
        return len(self._numbers)

    def boxes(self, number: int) -> npt.NDArray[np.float32]:
        """A photo's boxes."""
        return self._data.boxes(self._numbers[number])

    def read(self, number: int) -> Example:
        """Read a photo and its boxes."""
        return self._data.read(self._numbers[number])


def open_data(paths: Sequence[str | Path], listed: str, exif: str | None = None, *, labels: str = "auto") -> Records:
    """Open a set: a folder that `pytrt shards make` wrote, or folders and tars with labels.

    Args:
        paths: The folder of shards; or folders and uncompressed tars, which together make one set, or a data.yaml.
        listed: Name of the list of photos in the set, such as ``train.txt``, or of a part of a data.yaml; ``all``: every photo. Shards
            have no lists.
        exif: What the labels are drawn on where their sizes do not say it: the photo as it is ``shown``, turned as EXIF says, or its
            pixels as they are ``stored``. Boxes in shards are always those of the photo as it is shown.
        labels: Format of the labels, where the set is no shards; ``auto``: what the files show.

    Raises:
        NoDataError: a path or the list is missing.
        UsageError: a list of a set of shards is asked for, or there are shards and ``exif``.
    """
    if len(paths) == 1 and os.path.lexists(Path(paths[0]) / MANIFEST):
        if listed not in (ALL, TRAINING):
            raise UsageError(
                f"{paths[0]}: shards have no list {listed!r}.\nDo: give --evaluate all, with the shards to measure"
            )
        if exif is not None:
            raise UsageError(
                f"--exif {exif}: {paths[0]} is a set of shards, whose boxes are those of the upright photos.\nDo: leave --exif out"
            )
        return Shards.open(paths[0])
    try:
        return Labelled([Path(path) for path in paths], listed, labels, exif)
    except NoDataError as error:
        if getattr(error, "file", None) != listed:
            raise
        every = "--data with shards of all photos (pytrt shards make)" if listed == TRAINING else f"--evaluate {ALL}"
        raise NoDataError(
            f"data {', '.join(map(str, paths))}: the list {listed} is missing.\n"
            f"Do: write the photos' names into {listed}, one a line; or give {every}",
            file=listed,
        ) from error


def changes(data: Records) -> dict[str, int]:
    """How many boxes of a set were cut or left out, and other things that its labels are known for, by what they are."""
    counts = data.manifest.made.get("changed", {}) if isinstance(data, Shards) else getattr(data, "changed", {})
    return {what: count for what, count in counts.items() if count}


def hold_back(count: int, share: float, seed: int = 1) -> tuple[list[int], list[int]]:
    """Split photo numbers into (training, held-out), always the same way: by a shuffle with a fixed seed.

    Raises:
        UsageError: a share that is not 0 rounds to no photo, or to all of them.
    """
    shuffled = list(range(count))
    random.Random(seed).shuffle(shuffled)
    held_count = round(share * count)
    if share and not 0 < held_count < count:
        raise UsageError(
            f"--hold-back {share:g}: of {count:,} photos it holds back {held_count:,}, and "
            f"{'none would be measured' if not held_count else 'none is left to train on'}.\n"
            f"Do: give --hold-back {max(0.1, round(2 / max(2, count), 3)):g}, or leave it out"
        )
    return sorted(shuffled[held_count:]), sorted(shuffled[:held_count])


def split(data: Records, share: float) -> tuple[Records, Records | None]:
    """Split a set into the training photos and the held-out ones, None if there are none.

    Raises:
        UsageError: the share gives one of them no photo, or the photos that are held back have no boxes.
    """
    training, held_out = hold_back(len(data), share)
    if not held_out:
        return data, None
    part = Part(data, held_out)
    if not any(len(part.boxes(number)) for number in range(len(part))):
        raise UsageError(
            f"--hold-back {share:g}: none of the {len(part):,} photos that are held back has a box to measure.\n"
            "Do: give a larger share, or look at the labels"
        )
    return Part(data, training), part


def load_photos(data: Records, device: torch.device, *, side: int = SIDE, skip_bad: bool = False) -> Pool:
    """Decode all photos once, shrink what is larger than ``side``, and put them on the device with all their boxes.

    ``skip_bad`` leaves out bad ones.
    """
    boxes = max([1, *(len(data.boxes(number)) for number in range(len(data)))])
    sampler, options = StepSampler(len(data), 1, seed=0), Options(boxes=boxes)
    loader = make_loader("resident", data, sampler, device, size=side, stop=0, options=options, skip_bad=skip_bad)
    if loader.pool is None:
        raise AssertionError("a resident loader has a pool")
    if loader.skipped:  # the loader has others in their places
        good = torch.tensor([number not in loader.skipped for number in range(len(data))], device=device)
        return Pool(loader.pool.pixels[good], loader.pool.size[good], loader.pool.boxes[good])
    return loader.pool
