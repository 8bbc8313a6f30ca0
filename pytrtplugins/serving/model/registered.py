"""Models that a registry has: targets such as ``registry:animals@production`` and ``registry:animals:3``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError

if TYPE_CHECKING:
    from ...model_registry import ModelRegistry, ModelVersion, Reference

__all__ = ["Source", "current", "is_registered", "name_of", "resolve", "state"]

_PREFIX = "registry:"
_TARGET = re.compile(r"registry:[^:@]*[:@].*")  # without a version or a stage it would be the class of a module


@dataclass(frozen=True)
class Source:
    """Where a loaded model comes from.

    Attributes:
        version: The number of its version in the registry, as text.
        digest: SHA-256 of the engine file.
    """

    version: str
    digest: str


def is_registered(target: str) -> bool:
    """Whether a target names a version in a registry, and not a file or ``module:Class``."""
    return _TARGET.fullmatch(target) is not None


def name_of(target: str) -> str:
    """The model that a target names.

    Raises:
        UsageError: it names no version and no stage.
    """
    return _reference(target).name


def resolve(target: str, folder: str) -> tuple[Path, Source]:
    """The engine file that a target names now in the registry of a folder, whose contents were compared with its digest.

    Raises:
        ModelRegistryError: there is no such version, or its file is damaged.
        UsageError: the target names no version and no stage.
    """
    registry, version = _found(target, folder)
    return registry.file(version), _source(version)


def current(target: str, folder: str) -> Source:
    """The version that a target names now.

    Raises:
        ModelRegistryError: there is none.
    """
    return _source(_found(target, folder)[1])


def state(target: str, folder: str) -> tuple[int, int, int] | None:
    """What differs once a version came into a stage, at little cost; None: the file is not there."""
    from ...model_registry.folder import Folder

    try:
        status = os.stat(Folder(Path(folder)).history_path(name_of(target)))
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _reference(target: str) -> Reference:
    from ...model_registry import Reference  # here: a server of files needs none of it

    try:
        return Reference.parse(target.removeprefix(_PREFIX))
    except UsageError as error:
        raise UsageError(f"{target}: {error}") from None


def _found(target: str, folder: str) -> tuple[ModelRegistry, ModelVersion]:
    from ...model_registry import ModelRegistry

    registry = ModelRegistry(folder)
    return registry, registry.find(_reference(target))


def _source(version: ModelVersion) -> Source:
    return Source(str(version.version), version.digest)
