"""Which format labels have, and the reader of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...errors import NoDataError, UsageError
from ...utils.file_set import FileSet
from . import darknet
from .annotations import Annotations, Wanted

__all__ = ["FORMATS", "read_labels"]


class _Format(NamedTuple):
    recognize: Callable[[FileSet], str]
    read: Callable[[FileSet, Sequence[str] | None, Wanted], Annotations]


_READERS = {module.NAME: _Format(module.recognize, module.read) for module in (darknet,)}
FORMATS = tuple(_READERS)
"""Names of the formats."""


def read_labels(
    files: FileSet,
    *,
    labels: str = "auto",
    classes: Sequence[str] | None = None,
    listed: Sequence[str] | None = None,
) -> Annotations:
    """Read the labels of photos.

    Args:
        files: Photos and labels.
        labels: Name of the format; ``auto``: what the files show.
        classes: Names of the classes, in the order of their numbers; None: those that the labels name.
        listed: The photos to take, by their files or by their stems; None: all.

    Raises:
        NoDataError: no labels are found.
        UsageError: the format is unknown, or there are labels in several.
        FormatError: a file with the labels of all photos is damaged.
    """
    if labels == "auto":
        labels = _recognized(files)
    elif labels not in _READERS:
        raise UsageError(f"labels {labels!r}: expected auto or one of {', '.join(FORMATS)}.", labels=labels)
    wanted = Wanted(listed)
    found = _READERS[labels].read(files, classes, wanted)
    found.problems.extend(wanted.missing())
    return found


def _recognized(files: FileSet) -> str:
    reasons = {name: reason for name, each in _READERS.items() if (reason := each.recognize(files))}
    if not reasons:
        raise NoDataError(
            f"data {files.name!r}: no labels were found among {len(files):,} files. Known formats: {', '.join(FORMATS)}.\n"
            "Do: look at docs/shards.md, which shows how the files of each format lie",
            path=files.name,
        )
    if len(reasons) > 1:
        found = "; ".join(f"{name} ({reason})" for name, reason in reasons.items())
        raise UsageError(
            f"data {files.name!r}: labels in several formats: {found}.\nDo: choose one with --labels {next(iter(reasons))}",
            path=files.name,
        )
    return str(next(iter(reasons)))
