"""Targets that name a version in a registry, such as ``registry:animals@production`` and ``registry:animals:3``.

Serving knows no registry. An entry point of the group ``pytrtplugins.model_sources`` names the module that reads one.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UsageError

__all__ = ["Source", "current", "default_folder", "is_registered", "name_of", "resolve", "state"]

_GROUP, _NAME = "pytrtplugins.model_sources", "registry"
_TARGET = re.compile(r"registry:[^:@]*[:@].*")  # without a version or a stage it would be the class of a module


@dataclass(frozen=True)
class Source:
    """The registry version that a model was loaded from.

    Attributes:
        version: The number of its version in the registry, as text.
        digest: SHA-256 of the engine file.
    """

    version: str
    digest: str


def is_registered(target: str) -> bool:
    """Whether a target names a version in a registry, rather than a file or ``module:Class``."""
    return _TARGET.fullmatch(target) is not None


def default_folder() -> str:
    """The folder of the registry where none is named."""
    return str(_reader().default_folder())


def name_of(target: str) -> str:
    """The model that a target names.

    Raises:
        UsageError: it names no version and no stage.
    """
    return str(_reader().name_of(target))


def resolve(target: str, folder: str) -> tuple[Path, Source]:
    """The engine file that a target names now in the registry of a folder, whose contents were compared with its digest.

    Raises:
        ModelRegistryError: there is no such version, or its file is damaged.
        UsageError: the target names no version and no stage.
    """
    path, version = _reader().resolve(target, folder)
    return path, _source(version)


def current(target: str, folder: str) -> Source:
    """The version that a target names now."""
    return _source(_reader().current(target, folder))


def state(target: str, folder: str) -> tuple[int, int, int] | None:
    """A cheap fingerprint of a registry, which changes when a version enters a stage; None if its file is missing."""
    file_state: tuple[int, int, int] | None = _reader().state(target, folder)
    return file_state


@functools.cache
def _reader() -> Any:
    """The module that reads a registry; a server of files needs none."""
    for entry in importlib.metadata.entry_points(group=_GROUP, name=_NAME):
        return entry.load()
    raise UsageError(
        f"targets that begin with '{_NAME}:' need the entry point {_NAME!r} of {_GROUP!r}, which this installation lacks.\n"
        "Do: pip install --force-reinstall --no-deps pytrtplugins"
    )


def _source(version: Any) -> Source:
    return Source(str(version.version), version.digest)
