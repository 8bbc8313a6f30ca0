"""Reader of classification labels, as ImageNet has them: each photo is in a folder named after its class."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePosixPath

import numpy as np

from ...errors import UsageError
from ...utils.file_set import FileSet
from .annotations import (
    OTHER_CLASSES,
    Annotations,
    ClassNumbers,
    LabelledPhoto,
    PhotoFilter,
    Problem,
    UnknownClassError,
)
from .pairing import splits
from .photo_files import PhotoFiles

__all__ = ["NAME", "read", "recognize"]

NAME = "folders"
_WHOLE = (0.0, 0.0, 1.0, 1.0)


def recognize(files: FileSet, photos: PhotoFiles) -> str:
    """Return ``""``: any folders of photos could be of this format, so the user has to name it."""
    return ""


def read(files: FileSet, photos: PhotoFiles, numbers: ClassNumbers, wanted: PhotoFilter) -> Annotations:
    """Read the class of each photo, which becomes a box around the whole photo.

    Raises:
        UsageError: photos of several parts, such as ``train`` and ``val``, would come into one set.
    """
    result, parts = Annotations(NAME), defaultdict[str, list[str]](list)
    for photo in photos.names:
        if photo not in wanted:
            continue
        folders = PurePosixPath(photo).parent
        for part in splits(f"{folders.parent}/"):
            parts[part].append(photo)
        if not folders.name:
            result.problems.append(Problem(photo, "it lies in no folder that names its class"))
            continue
        try:
            number = numbers.number(folders.name)
        except UnknownClassError as error:
            result.problems.append(Problem(photo, str(error)))
            continue
        if number is None:
            result.left_out[OTHER_CLASSES] += 1
            continue
        result.photos.append(LabelledPhoto(photo, np.array([(number, *_WHOLE)])))
    if len(parts) > 1:
        counts = ", ".join(f"{len(names):,} of {part} ({names[0]})" for part, names in sorted(parts.items()))
        raise UsageError(
            f"data {files.name!r}: photos of several parts would come into one set: {counts}.\n"
            f"Do: give the folder of one part, such as {_part_folder(files, sorted(parts.values())[0][0])}",
            path=files.name,
        )
    return result


def _part_folder(files: FileSet, photo: str) -> str:
    return f"{files.name}/{PurePosixPath(photo).parent.parent}"
