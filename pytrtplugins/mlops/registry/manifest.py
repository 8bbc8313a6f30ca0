"""The manifest of a version: a JSON file that never changes."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...errors import ModelRegistryError
from ...utils.files import sha256_hex
from ...utils.text_formats import parse_json, shorten

__all__ = [
    "ENGINE",
    "FORMAT",
    "MAX_BYTES",
    "MAX_FIGURES",
    "ModelVersion",
    "StoredFile",
    "check_fields",
    "is_digest",
    "newer_format_error",
    "now",
    "read",
    "version_from_json",
    "write",
]

FORMAT = 1
"""Of registries and all files in them."""
MAX_BYTES = 4 << 20
"""Of a manifest or a history."""
MAX_FIGURES = 4096
ENGINE = "engine"
"""Role of the file that is served."""

_MAX_ENTRIES = 256  # of other mappings
_LONGEST_TEXT = 4000
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .@:%/+-]{0,199}")
_FILE_NAME = re.compile(r"[^/\\\0-\x1f]{1,255}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True)
class StoredFile:
    """A file of a version, stored under its digest.

    Attributes:
        name: What it was called.
        sha256: Digest of its contents.
        bytes: Its size.
    """

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class ModelVersion:
    """A version of a model: its files, their origin, and figures.

    Attributes:
        name: Of the model.
        version: Its number, from 1 on.
        created: When it was added, in UTC, such as ``2026-01-31T12:00:00Z``.
        engine: Name of the engine.
        precision: The precision of its layers: ``fp32`` where it was built for INT8 and computes in float32.
        files: By role: ``engine``, ``calibration`` (the cache), ``precision`` (the precision file).
        networks: Digests of the network: ``built`` as it is in the engine file, after all passes; ``source``, the file that it was
            built from; ``calibrated``, as the calibration cache names it.
        data: By what they were used for, such as ``calibration``, ``evaluation``, ``shards``: digests of data.
        figures: What was measured: numbers by their names, such as ``map50``.
        hardware: Processor, GPU with its driver, and system of the machine that added it.
        packages: Versions by package, and what the engine file says that it was built with.
        licence: Under which it may be used; empty where nobody said.
        run: The run of a pipeline that made it; empty where none did.
        parent: The version that it followed; None: it is the first.
        note: What else somebody wanted to say.
    """

    name: str
    version: int
    created: str
    engine: str
    precision: str
    files: Mapping[str, StoredFile]
    networks: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    licence: str = ""
    run: str = ""
    parent: int | None = None
    note: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the engine file: what served answers name."""
        return self.files[ENGINE].sha256

    @property
    def bytes(self) -> int:
        """Size of all its files, in bytes."""
        return sum(file.bytes for file in self.files.values())

    def __str__(self) -> str:
        """Name and number, such as ``animals:3``."""
        return f"{self.name}:{self.version}"


def write(value: Any) -> bytes:
    """The bytes of a dataclass in a registry: its fields, the format, and a digest of both that shows damage."""
    facts = json.loads(json.dumps(asdict(value), allow_nan=False))
    text = json.dumps({"format": FORMAT, "sha256": _digest(facts), "content": facts}, indent=1, ensure_ascii=True)
    return f"{text}\n".encode()


def read(data: bytes, where: str) -> Any:
    """Parse the fields that `write` wrote; ``where`` names the file in messages.

    Raises:
        ModelRegistryError: they are damaged, or of a newer format.
    """

    def error(text: str, **facts: Any) -> ModelRegistryError:
        return ModelRegistryError(f"{text}\nDo: pytrt models check", **facts)

    fields_read = parse_json(data, where, max_bytes=MAX_BYTES, error=error)
    if not isinstance(fields_read, dict) or not {"format"} <= fields_read.keys():
        raise error(f"{where}: not a file of a registry of models", path=where)
    if fields_read["format"] != FORMAT:
        raise newer_format_error(where, fields_read["format"])
    if fields_read.keys() != {"format", "sha256", "content"} or fields_read["sha256"] != _digest(
        fields_read["content"]
    ):
        raise error(f"{where}: damaged: its contents do not have the digest that it names", path=where)
    return fields_read["content"]


def newer_format_error(where: str, actual_format: object) -> ModelRegistryError:
    """The error for a format of a newer version of this package."""
    return ModelRegistryError(
        f"{where}: format {shorten(actual_format)}, this package knows format {FORMAT}: a newer one wrote it.\n"
        "Do: pip install --upgrade pytrtplugins",
        path=where,
    )


def version_from_json(facts: Any, where: str) -> ModelVersion:
    """The version that `write` wrote.

    Raises:
        ModelRegistryError: a field is missing, unknown or wrong.
    """
    field_names = {item.name for item in fields(ModelVersion)}
    if not isinstance(facts, dict) or facts.keys() != field_names:
        keys = shorten(sorted(facts)) if isinstance(facts, dict) else shorten(facts)
        raise ModelRegistryError(
            f"{where}: expected the fields {', '.join(sorted(field_names))}, found {keys}", path=where
        )
    return check_fields(ModelVersion(**{**facts, "files": _files(facts["files"], where)}), where)


def check_fields(version: ModelVersion, where: str) -> ModelVersion:
    """The version, after checking that its fields are valid in a manifest."""
    for name, fits in _FIELDS.items():
        if not fits(value := getattr(version, name)):
            raise ModelRegistryError(f"{where}: {name} cannot be {shorten(value)}", path=where)
    return version


def now() -> str:
    """The time, in UTC, as manifests and histories have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def is_digest(text: Any) -> bool:
    """Whether this is a SHA-256 in 64 hex digits."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def _digest(facts: Any) -> str:
    return sha256_hex(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode())


def _files(facts: Any, where: str) -> dict[str, StoredFile]:
    if not isinstance(facts, dict):
        raise ModelRegistryError(f"{where}: files cannot be {shorten(facts)}", path=where)
    field_names = {item.name for item in fields(StoredFile)}
    for role, file in facts.items():
        if not isinstance(file, dict) or file.keys() != field_names:
            raise ModelRegistryError(f"{where}: files, {shorten(role)} cannot be {shorten(file)}", path=where)
    return {role: StoredFile(**file) for role, file in facts.items()}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


def _is_version(value: Any) -> bool:
    return type(value) is int and 0 < value < 10**9


def _is_file(value: Any) -> bool:
    return (
        isinstance(value, StoredFile)
        and isinstance(value.name, str)
        and _FILE_NAME.fullmatch(value.name) is not None
        and is_digest(value.sha256)
        and type(value.bytes) is int
        and value.bytes >= 0
    )


def _is_mapping_of(fits: Callable[[Any], bool], most: int = _MAX_ENTRIES) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return (
            isinstance(value, Mapping)
            and len(value) <= most
            and all(_is_word(key) and fits(item) for key, item in value.items())
        )

    return check


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "name": _is_word,
    "version": _is_version,
    "created": lambda value: isinstance(value, str) and _TIME.fullmatch(value) is not None,
    "engine": _is_word,
    "precision": _is_text,
    "files": lambda value: _is_mapping_of(_is_file)(value) and ENGINE in value,
    "networks": _is_mapping_of(is_digest),
    "data": _is_mapping_of(is_digest),
    "figures": _is_mapping_of(_is_number, MAX_FIGURES),
    "hardware": _is_mapping_of(_is_text),
    "packages": _is_mapping_of(_is_text),
    "licence": _is_text,
    "run": _is_text,
    "parent": lambda value: value is None or _is_version(value),
    "note": _is_text,
}
