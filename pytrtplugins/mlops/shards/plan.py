"""Assign photos to shards, without reading them."""

from __future__ import annotations

import hashlib
import json
import os.path
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ...utils.file_set import FileSet
from ...vision.image import MAX_FILE_BYTES
from ...vision.labels import LabelledPhoto, Problem
from .writer import stored_bytes

__all__ = ["OUTSIDE", "PlannedPhoto", "PlannedShard", "held_back", "plan_photos", "plan_shards"]

OUTSIDE = 1e-3
"""Share of a side by which a box may be outside before it counts: labels are rounded."""
_LONGEST_KEY = 200  # bytes


@dataclass(frozen=True)
class PlannedPhoto:
    """A photo that is planned for a shard.

    Attributes:
        key: Its name there, without a suffix.
        file: Its name in the source.
        boxes: (M, 5) float32: class, centre x, centre y, width, height, within the photo.
        size: Width and height in pixels that its labels state; None where they state none.
    """

    key: str
    file: str
    boxes: npt.NDArray[np.float32]
    size: tuple[int, int] | None


@dataclass(frozen=True)
class PlannedShard:
    """A shard's name and photos; the digest covers everything that it is made from."""

    file: str
    photos: tuple[PlannedPhoto, ...]
    digest: str


def plan_photos(
    files: FileSet, photos: Sequence[LabelledPhoto]
) -> tuple[list[PlannedPhoto], list[Problem], Counter[str]]:
    """The photos sorted by key, the problems of other photos, and counts of changed boxes."""
    problems, changed, planned = [], Counter[str](), dict[str, PlannedPhoto]()
    common = _common_folder([photo.file for photo in photos])
    for photo in photos:
        key = _key(photo.file, common)
        if what := _fault(photo.file, key, files):
            problems.append(Problem(photo.file, what))
        elif key in planned:
            what = f"the key {key!r} is also that of {planned[key].file}"
            problems.append(Problem(photo.file, what if photo.file != planned[key].file else "it is labelled twice"))
        else:
            boxes = _within(photo.boxes, changed)
            planned[key] = PlannedPhoto(key, photo.file, boxes, photo.size)
    return [planned[key] for key in sorted(planned)], problems, changed


def plan_shards(files: FileSet, photos: Sequence[PlannedPhoto], size: int) -> list[PlannedShard]:
    """Fill shards one after another, up to about ``size`` bytes each."""
    groups: list[list[PlannedPhoto]] = [[]]
    filled = 0
    for photo in photos:
        needed_bytes = stored_bytes(files.state(photo.file)[0], len(photo.boxes))
        if groups[-1] and filled + needed_bytes > size:
            groups.append([])
            filled = 0
        groups[-1].append(photo)
        filled += needed_bytes
    return [
        PlannedShard(f"shard-{number:05d}.tar", tuple(group), _digest(files, group))
        for number, group in enumerate(groups)
        if group
    ]


def held_back(key: str, share: float) -> bool:
    """Whether a photo belongs to the held-out part: by a hash of its key, so that it stays there when others come or go."""
    drawn = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    return drawn < share * (1 << 64)


def _common_folder(names: Sequence[str]) -> str:
    folders = {name.rpartition("/")[0] for name in names}
    return os.path.commonpath(folders) if folders and not any(name.startswith("/") for name in names) else ""


def _key(file: str, common: str) -> str:
    """A photo's key: its path below the common folder, up to the first dot of its name, as in WebDataset."""
    path = PurePosixPath(file).relative_to(common) if common else PurePosixPath(file)
    return str(path.with_name(path.stem.replace(".", "_")))


def _fault(file: str, key: str, files: FileSet) -> str:
    if file not in files:
        return "the photo is missing; its labels are there"
    try:
        files.check_alone(file, MAX_FILE_BYTES)
    except FormatError as error:
        return str(error).removeprefix(f"{file}: ")
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if file.startswith("/") or ".." in PurePosixPath(file).parts or not key.isprintable():
        return "its name has '..', begins with '/', or has characters that cannot be printed"
    return f"its name has {len(encoded)} bytes; {_LONGEST_KEY} at most" if len(encoded) > _LONGEST_KEY else ""


def _within(rows: npt.NDArray[np.float64], changed: Counter[str]) -> npt.NDArray[np.float32]:
    """Class, centre and size of boxes, cut where the photo ends; of those that lie outside as a whole nothing is left."""
    corners = np.clip(rows[:, 1:], 0, 1)
    outside = ((rows[:, 1:] < -OUTSIDE) | (rows[:, 1:] > 1 + OUTSIDE)).any(axis=1)
    some = ((corners[:, 2:] - corners[:, :2]) > 0).all(axis=1)
    changed["boxes cut at the photo's edge"] += int((outside & some).sum())
    changed["boxes without an area in the photo, left out"] += int((~some).sum())
    corners = corners[some]
    centres, sizes = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
    return np.concatenate([rows[some, :1], centres, sizes], axis=1).astype(np.float32)


def _digest(files: FileSet, photos: Sequence[PlannedPhoto]) -> str:
    digest = hashlib.sha256()
    for photo in photos:
        facts = [photo.key, photo.file, files.state(photo.file), photo.size, len(photo.boxes)]
        digest.update(json.dumps(facts).encode() + photo.boxes.tobytes())
    return digest.hexdigest()
