"""Recognize the format of labels, and read them with its reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...errors import NoDataError, UsageError
from ...utils.file_set import FileSet
from ...utils.name_list import check_class_names
from . import coco, cvat, darknet, folders, voc
from .annotations import Annotations, ClassNumbers, PhotoFilter
from .parts import listed_names
from .photo_files import PhotoFiles

__all__ = ["FORMATS", "read_labels"]


class _Format(NamedTuple):
    """The functions of a format's module."""

    recognize: Callable[[FileSet, PhotoFiles], str]
    read: Callable[[FileSet, PhotoFiles, ClassNumbers, PhotoFilter], Annotations]


_READERS = {module.NAME: _Format(module.recognize, module.read) for module in (voc, coco, darknet, cvat, folders)}
FORMATS = tuple(_READERS)
"""Names of the formats."""


def read_labels(
    files: FileSet,
    *,
    labels: str = "auto",
    classes: Sequence[str] | None = None,
    drop_others: bool = False,
    listed: str | Sequence[str] | None = None,
    exif: str | None = None,
) -> Annotations:
    """Read the labels of photos.

    Args:
        files: Photos and labels.
        labels: Name of the format; ``auto``: what the files show.
        classes: Names of the classes, in the order of their numbers; None: those that the labels name.
        drop_others: Leave out boxes of classes that are not among ``classes``, which are a problem otherwise.
        listed: The photos to take, by their files or by their stems; or the name of a list in the set, or of a part that a data.yaml has.
            None: all; see `listed_names`.
        exif: What the labels are drawn on; see `EXIF` of ``shards.photo``. None: their sizes say it. Boxes stay as the labels have them.

    Raises:
        NoDataError: no labels are found, or the list is missing.
        UsageError: the format is unknown, there are labels in several, or two classes have one name.
        FormatError: a file with the labels of all photos is damaged.
    """
    try:
        classes = None if classes is None else check_class_names(classes, once=True)
    except ValueError as error:
        raise UsageError(f"classes: {error}.\nDo: give each class a name of its own") from error
    photos = PhotoFiles(files, exif)
    if labels == "auto":
        labels = _recognize_format(files, photos)
    elif labels not in _READERS:
        raise UsageError(f"labels {labels!r}: expected auto or one of {', '.join(FORMATS)}.", labels=labels)
    near = listed if isinstance(listed, str) else ""
    names = listed_names(files, photos, listed) if listed is None or isinstance(listed, str) else listed
    wanted = PhotoFilter(names, lambda name: photos.listed(name, near))
    numbers = ClassNumbers(classes, drop=drop_others)
    annotations = _READERS[labels].read(files, photos, numbers, wanted)
    annotations.classes = numbers.finish(annotations.photos)
    annotations.problems.extend(wanted.unused())
    return annotations


def _recognize_format(files: FileSet, photos: PhotoFiles) -> str:
    reasons = {
        name: reason for name, label_format in _READERS.items() if (reason := label_format.recognize(files, photos))
    }
    if not reasons:
        raise NoDataError(
            f"data {files.name!r}: no labels were found among {len(files):,} files. Known formats: {', '.join(FORMATS)}.\n"
            "Do: look at docs/how-to/shards.md, which shows how the files of each format lie; "
            "`pytrt data compare` needs none with --labels none",
            path=files.name,
        )
    if len(reasons) > 1:
        formats = "; ".join(f"{name} ({reason})" for name, reason in reasons.items())
        raise UsageError(
            f"data {files.name!r}: labels in several formats: {formats}.\nDo: choose one with --labels {next(iter(reasons))}",
            path=files.name,
        )
    return str(next(iter(reasons)))
