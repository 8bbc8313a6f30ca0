"""Trace an engine back to the data that it was made from."""

from __future__ import annotations

from dataclasses import dataclass

from .manifest import ModelVersion, is_digest
from .reference import Reference
from .registry import ModelRegistry

__all__ = ["Lineage", "is_digest_prefix", "trace"]

_SHORTEST = 8  # digits of a digest that a user types


@dataclass(frozen=True)
class Lineage:
    """A version and its ancestors.

    Attributes:
        version: The version.
        stage: That it is in; None: in none yet.
        ancestors: The version that it followed, the one that that followed, and so on, as far as they are still there.
    """

    version: ModelVersion
    stage: str | None
    ancestors: tuple[ModelVersion, ...]


def is_digest_prefix(text: str) -> bool:
    """Whether a word is a digest or a prefix of at least 8 digits, and not the name of a model."""
    return len(text) >= _SHORTEST and is_digest(text.ljust(64, "0"))


def trace(registry: ModelRegistry, subject: str) -> tuple[Lineage, ...]:
    """Find where a version comes from.

    Args:
        registry: The registry.
        subject: ``NAME:VERSION`` and the like; or the digest, or its first 8 digits and more, of an engine file, as a served answer
            has it, of a network, or of data: then all versions that have it.

    Raises:
        ModelRegistryError: no version has that.
        UsageError: it is neither.
    """
    beginning = subject.removeprefix("sha256:")
    named = not is_digest_prefix(beginning) or beginning in registry.names()
    versions = (registry.find(Reference.parse(subject)),) if named else registry.with_digest(beginning)
    return tuple(
        Lineage(version, registry.history(version.name).stage_of(version.version), _ancestors(registry, version))
        for version in versions
    )


def _ancestors(registry: ModelRegistry, version: ModelVersion) -> tuple[ModelVersion, ...]:
    by_number = {item.version: item for item in registry.versions(version.name)}
    ancestors: list[ModelVersion] = []
    while version.parent in by_number and by_number[version.parent].version < version.version:
        version = by_number[version.parent]
        ancestors.append(version)
    return tuple(ancestors)
