"""The manifest of a set of shards: its classes, and each shard's size and SHA-256."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import FormatError, NoDataError
from ...utils.atomic import write_atomic
from ...utils.files import sha256_hex
from ...utils.text_formats import read_json, shorten

__all__ = ["NAME", "Manifest", "ShardFacts"]

NAME = "shards.json"
_FORMAT, _VERSION, _MAX_BYTES = "pytrtplugins shards", 1, 64 << 20
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}\.tar")


@dataclass(frozen=True)
class ShardFacts:
    """A shard's entry in the manifest.

    Attributes:
        file: Name of the tar.
        bytes: Its size.
        sha256: Of the tar, as 64 hex digits.
        photos: How many it holds.
        boxes: Of all its photos.
    """

    file: str
    bytes: int
    sha256: str
    photos: int
    boxes: int

    @property
    def index(self) -> str:
        """Name of its index."""
        return f"{self.file.removesuffix('.tar')}.index.npz"


@dataclass(frozen=True)
class Manifest:
    """The manifest of a set of shards.

    Attributes:
        classes: Names, in the order of their numbers.
        shards: In the order of their photos.
        made: What `pytrt shards make` did: the format of the labels, options, and what was clipped or left out.
    """

    classes: tuple[str, ...]
    shards: tuple[ShardFacts, ...]
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the classes, and of all photos and boxes, as 64 hex digits."""
        return sha256_hex(json.dumps([self.classes, [shard.sha256 for shard in self.shards]]).encode())

    def write(self, folder: Path) -> None:
        """Write the file, which is what makes a folder a set."""
        facts = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        write_atomic(folder / NAME, f"{json.dumps(facts, indent=1, ensure_ascii=False)}\n".encode(), within=folder)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the file of a folder.

        Raises:
            NoDataError: the folder is no set of shards.
            FormatError: the file is damaged, or of another version.
        """
        path = folder / NAME
        try:
            facts = read_json(path, max_bytes=_MAX_BYTES, within=folder)
        except (FileNotFoundError, NotADirectoryError):
            tars = len(list(folder.glob("*.tar"))) if folder.is_dir() else 0
            state = f"{tars} tars, but no {NAME}" if folder.is_dir() else "no such folder"
            raise NoDataError(
                f"shards {str(folder)!r}: {state}. A set that was not finished has none.\n"
                f"Do: pytrt shards make DATA -o {folder}, which continues after the interruption",
                path=folder,
            ) from None
        if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
            raise FormatError(f"{path}: not the manifest of a set of shards.", path=path)
        if facts.get("version") != _VERSION:
            raise FormatError(
                f"{path}: version {shorten(facts.get('version'))} is not known; this package reads {_VERSION}.\n"
                "Do: pip install --upgrade pytrtplugins",
                path=path,
            )
        classes: Any
        shards: Any
        classes, shards, origin = (facts.get(name) for name in ("classes", "shards", "made"))
        if not _are_classes(classes) or not _are_shards(shards) or not isinstance(origin, dict):
            raise FormatError(f"{path}: damaged: {shorten(facts, 200)}", path=path)
        return cls(tuple(classes), tuple(ShardFacts(**entry) for entry in shards), origin)


def _are_classes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _are_shards(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(entry, dict) and _is_shard(entry) for entry in value)
        and len({entry["file"] for entry in value}) == len(value)
    )


def _is_shard(facts: dict[str, Any]) -> bool:
    if set(facts) != set(ShardFacts.__annotations__):
        return False
    counts = [facts[name] for name in ("bytes", "photos", "boxes")]
    return (
        all(type(count) is int and 0 <= count < 1 << 60 for count in counts)
        and isinstance(facts["file"], str)
        and _FILE.fullmatch(facts["file"]) is not None
        and isinstance(facts["sha256"], str)
        and re.fullmatch("[0-9a-f]{64}", facts["sha256"]) is not None
    )
