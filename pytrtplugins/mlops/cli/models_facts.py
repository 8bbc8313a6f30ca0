"""Results of the commands ``pytrt models ...``; the fields are keys of the JSON (docs/how-to/shell.md)."""

from __future__ import annotations

from dataclasses import dataclass

from ..registry import Change, Lineage, ModelVersion

__all__ = ["Added", "Card", "Changed", "Listed", "ListedVersion", "Traced"]


@dataclass(frozen=True)
class Added:
    """The version that was added.

    Attributes:
        name: Of the model.
        version: Its number.
        digest: SHA-256 of the engine file.
        bytes: Of its files.
        stage: That it is in; null: in none.
    """

    name: str
    version: int
    digest: str
    bytes: int
    stage: str | None


@dataclass(frozen=True)
class ListedVersion:
    """A version and its stage.

    Attributes:
        version: All that is known of it.
        stage: That it is in; null: in none.
    """

    version: ModelVersion
    stage: str | None


@dataclass(frozen=True)
class Listed:
    """All versions in a registry.

    Attributes:
        versions: Model by model, the oldest first.
    """

    versions: tuple[ListedVersion, ...]


@dataclass(frozen=True)
class Card:
    """A version with the history of its model.

    Attributes:
        version: All that is known of it.
        stage: That it is in; null: in none.
        history: All changes of the model's stages.
        page: The file that was written; null where none was.
    """

    version: ModelVersion
    stage: str | None
    history: tuple[Change, ...]
    page: str | None


@dataclass(frozen=True)
class Changed:
    """The change of a stage.

    Attributes:
        name: Of the model.
        change: What the history has.
    """

    name: str
    change: Change


@dataclass(frozen=True)
class Traced:
    """The origins of versions.

    Attributes:
        found: One, or all that have a digest.
    """

    found: tuple[Lineage, ...]
