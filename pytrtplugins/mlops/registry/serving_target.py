"""Resolve a server's targets such as ``registry:animals@production``; pyproject.toml registers this module."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import UsageError
from .folder import Folder
from .manifest import ModelVersion
from .reference import Reference
from .registry import ModelRegistry, default_folder

__all__ = ["current", "default_folder", "name_of", "resolve", "state"]

_PREFIX = "registry:"


def name_of(target: str) -> str:
    """The model that a target names.

    Raises:
        UsageError: it names no version and no stage.
    """
    return _reference(target).name


def resolve(target: str, folder: str) -> tuple[Path, ModelVersion]:
    """The engine file that a target names now in the registry of a folder, whose contents were compared with its digest.

    Raises:
        ModelRegistryError: there is no such version, or its file is damaged.
        UsageError: the target names no version and no stage.
    """
    registry = ModelRegistry(folder)
    version = registry.find(_reference(target))
    return registry.file(version), version


def current(target: str, folder: str) -> ModelVersion:
    """The version that a target names now."""
    return ModelRegistry(folder).find(_reference(target))


def state(target: str, folder: str) -> tuple[int, int, int] | None:
    """A cheap fingerprint of a registry, which changes when a version enters a stage; None if its file is missing."""
    try:
        status = os.stat(Folder(Path(folder)).history_path(name_of(target)))
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _reference(target: str) -> Reference:
    try:
        return Reference.parse(target.removeprefix(_PREFIX))
    except UsageError as error:
        raise UsageError(f"{target}: {error}") from None
