"""Publish outputs at the paths that steps declare, as links to the stored data, each replaced as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...errors import FormatError, StepError
from ...utils.atomic import write_atomic
from ...utils.text_formats import read_json
from .folder import PipelineFolder
from .scratch import remove_tree
from .step import Step

__all__ = ["Published"]

_LIST = "published.json"
_Mark = list[list[Any]]


class Published:
    """The outputs that a pipeline has published next to the user's files, which are never replaced.

    Args:
        folder: The pipeline's.
    """

    def __init__(self, folder: PipelineFolder) -> None:
        self._folder = folder
        self._marks: dict[str, list[_Mark]] = {}
        with contextlib.suppress(OSError, FormatError):
            marks = read_json(folder.path / _LIST, within=folder.root)
            self._marks = marks if isinstance(marks, dict) else {}

    def check(self, steps: Iterable[Step]) -> None:
        """Check that no output would replace a file that the user made or changed.

        Raises:
            StepError: one would; ``.path`` says which.
        """
        for step in steps:
            for path in step.outputs:
                place = self._folder.base / path
                if os.path.lexists(place) and not self._is_ours(path):
                    is_listed = path in self._marks
                    how = (
                        "was changed since this pipeline wrote it"
                        if is_listed
                        else "is there, and not from this pipeline"
                    )
                    raise StepError(
                        f"step {step.name}: its output {path} {how}; it is not replaced.\nDo: mv {place} {place}.mine",
                        step=step.name,
                        path=place,
                    )

    def put(self, step: Step) -> None:
        """Publish the outputs of a finished step at their paths.

        Raises:
            OSError: they cannot be written.
        """
        for path in step.outputs:
            source, place = self._folder.stored(path), self._folder.base / path
            if _mark(place) == _mark(source):  # the same files
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            self._folder.work.mkdir(exist_ok=True)
            new = self._folder.work / f"published.{secrets.token_hex(4)}"
            old = new.with_suffix(".old")
            try:
                _link(source, new)
                self._marks[path] = [
                    *self._marks.get(path, [])[-1:],
                    _mark(new),
                ]  # before it takes its place: it is known then
                write_atomic(self._folder.path / _LIST, json.dumps(self._marks).encode(), within=self._folder.root)
                if place.is_dir():
                    place.rename(old)
                new.replace(place)
            finally:
                remove_tree(new)
                remove_tree(old)

    def _is_ours(self, path: str) -> bool:
        mark = _mark(self._folder.base / path)
        return mark in (*self._marks.get(path, ()), _mark(self._folder.stored(path)))


def _link(source: Path, target: Path) -> None:
    """Link the data under another name; copy it if the disk has no such links."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, copy_function=_file)
    else:
        _file(str(source), str(target))


def _file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _mark(place: Path) -> _Mark:
    """Name, inode, size and time of each file of an output; empty if it does not exist."""
    files = [Path(where, name) for where, _, names in os.walk(place) for name in names] if place.is_dir() else [place]
    marks = []
    with contextlib.suppress(FileNotFoundError):
        for file in sorted(files):
            status = file.lstat()
            marks.append([os.path.relpath(file, place), status.st_ino, status.st_size, status.st_mtime_ns])
    return marks
