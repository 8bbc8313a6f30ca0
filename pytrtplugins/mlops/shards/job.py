"""Write one shard, as a thread does: read, check and write its photos."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ImageError, PytrtpluginsError
from ...utils.atomic import atomic_file
from ...utils.file_set import FileSet
from ...utils.progress import ProgressBar
from ...vision.image import MAX_FILE_BYTES, decode_image, turn_boxes
from ...vision.labels import Problem
from ...vision.labels.photo import SUFFIXES, Photo, label_orientation, read_header, shrunk
from .manifest import ShardFacts
from .plan import PlannedPhoto, PlannedShard
from .writer import ShardWriter

__all__ = ["BadPhotosError", "ShardJob", "StoppedError", "write_shard"]


@dataclass(frozen=True)
class ShardJob:
    """Settings that all shards of a set share."""

    files: FileSet
    folder: Path
    classes: tuple[str, ...]
    longest_side: int | None
    skip_bad: bool
    exif: str | None

    @property
    def identity(self) -> dict[str, Any]:
        """What a finished shard depends on besides its photos."""
        return {"classes": self.classes, "longest_side": self.longest_side, "exif": self.exif, "version": 1}


class BadPhotosError(Exception):
    """Some photos of a shard cannot be used."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems


class StoppedError(Exception):
    """Another shard has failed, or the user has stopped the run."""


def write_shard(job: ShardJob, shard: PlannedShard, stop: threading.Event, bar: ProgressBar) -> dict[str, Any]:
    """Write a tar and its index; returns the journal's entry."""
    problems, turned = list[Problem](), 0
    path = job.folder / shard.file
    with atomic_file(path, within=job.folder) as file:
        writer = ShardWriter(file, job.classes)
        for planned in shard.photos:
            if stop.is_set():
                raise StoppedError
            try:
                source, image, photo, boxes = _read_photo(job, planned)
            except (PytrtpluginsError, OSError) as error:
                problems.append(Problem(planned.file, str(error).partition("\n")[0]))
            else:
                turned += source.turned
                size = (photo.width, photo.height)
                writer.add(planned.key, SUFFIXES[photo.format], image, size, boxes)
            bar()
        if problems and not job.skip_bad:
            raise BadPhotosError(problems)
        index, digest = writer.finish()
    facts = ShardFacts(shard.file, index.tar_bytes, digest, len(index), len(index.boxes))
    index.write(job.folder / facts.index)
    return {"shard": vars(facts), "problems": [vars(problem) for problem in problems], "turned": turned}


def _read_photo(job: ShardJob, planned: PlannedPhoto) -> tuple[Photo, bytes, Photo, npt.NDArray[np.float32]]:
    """The head of a photo's file; what is stored of it, the head of that, and its boxes.

    It is decoded once, so that training does not meet a photo that cannot be.
    """
    image = job.files.read(planned.file, MAX_FILE_BYTES)
    source = photo = read_header(image, planned.file)
    if job.longest_side is not None:
        image = shrunk(image, planned.file, job.longest_side)
        photo = read_header(image, planned.file)
    if photo.format not in SUFFIXES:
        raise ImageError(f"a {photo.format} file; shards hold {', '.join(SUFFIXES)}: --longest-side makes JPEG of it")
    decode_image(image, planned.file)
    orientation = label_orientation(source, planned.size, job.exif, planned.boxes)
    return source, image, photo, turn_boxes(planned.boxes, orientation)
