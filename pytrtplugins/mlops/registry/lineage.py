"""The way back from an engine to the data that it was made of."""

from __future__ import annotations

from dataclasses import dataclass

from .manifest import ModelVersion, is_digest
from .reference import Reference
from .registry import ModelRegistry

__all__ = ["Lineage", "is_beginning", "trace"]

_SHORTEST = 8  # digits of a digest that a user types


@dataclass(frozen=True)
class Lineage:
    """A version, and those that it followed.

    Attributes:
        version: The version.
        stage: That it is in; None: in none yet.
        ancestors: The version that it followed, the one that that followed, and so on, as far as they are still there.
    """

    version: ModelVersion
    stage: str | None
    ancestors: tuple[ModelVersion, ...]


def is_beginning(text: str) -> bool:
    """Whether a word is a digest or its beginning, of 8 digits or more, and not the name of a model."""
    return len(text) >= _SHORTEST and is_digest(text.ljust(64, "0"))


def trace(registry: ModelRegistry, asked: str) -> tuple[Lineage, ...]:
    """Find where a version comes from.

    Args:
        registry: The registry.
        asked: ``NAME:VERSION`` and the like; or the digest, or its first 8 digits and more, of an engine file, as a served answer
            has it, of a network, or of data: then all versions that have it.

    Raises:
        ModelRegistryError: no version has that.
        UsageError: it is neither.
    """
    beginning = asked.removeprefix("sha256:")
    named = not is_beginning(beginning) or beginning in registry.names()
    found = (registry.find(Reference.parse(asked)),) if named else registry.with_digest(beginning)
    return tuple(
        Lineage(each, registry.history(each.name).stage_of(each.version), _ancestors(registry, each)) for each in found
    )


def _ancestors(registry: ModelRegistry, version: ModelVersion) -> tuple[ModelVersion, ...]:
    known = {each.version: each for each in registry.versions(version.name)}
    found: list[ModelVersion] = []
    while version.parent in known and known[version.parent].version < version.version:
        version = known[version.parent]
        found.append(version)
    return tuple(found)
