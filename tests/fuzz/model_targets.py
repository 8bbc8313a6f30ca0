"""Targets for the files of a registry of models."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from pytrtplugins.mlops.registry import Change, History, ModelVersion, Reference, StoredFile
from pytrtplugins.mlops.registry.manifest import read, version_from_json, write
from pytrtplugins.utils.text_formats import parse_json
from tests.fuzz.registry import TARGETS, target

__all__ = ["registered"]

TIME = "2026-01-31T12:00:00Z"
VERSION = ModelVersion(
    name="animals",
    version=3,
    created=TIME,
    engine="cpu",
    precision="int8",
    files={"engine": StoredFile("animals.engine", "0" * 64, 1000)},
    networks={"built": "1" * 64},
    data={"shards": "2" * 64},
    figures={"map50": 0.657},
    hardware={"processor": "a CPU"},
    packages={"numpy": "2.0"},
    licence="Apache-2.0",
    parent=2,
)
HISTORY = History(
    (Change(TIME, "me", "", "promote", 2, "production"), Change(TIME, "me", "better", "promote", 3, "production"))
)


def registered() -> Iterator[tuple[str, bytes | str]]:
    """Seeds for these targets."""
    yield "model_version/whole", json.dumps(dataclasses.asdict(VERSION))
    yield "model_history/whole", json.dumps(dataclasses.asdict(HISTORY))
    yield "registry_file/whole", write(VERSION)
    yield "registry_file/newer", '{"format": 2}'
    yield "model_reference/version", "animals:3"
    yield "model_reference/stage", "animals@production"


@target
def model_version(data: bytes) -> object:
    """The manifest of a version, whose digest fits; what is read is written the same."""
    found = version_from_json(parse_json(data, "3.json"), "3.json")
    assert version_from_json(read(write(found), "3.json"), "3.json") == found
    return found


@target
def model_history(data: bytes) -> object:
    """The history of a model's stages, whose digest fits."""
    found = History.from_json(parse_json(data, "history.json"))
    return [found.stage_of(version) for version in range(1, 5)], found.current("production"), found.before("staging")


@target
def model_reference(data: bytes) -> object:
    """How a user names a version."""
    text = data.decode("utf-8", "replace")
    assert str(Reference.parse(text)) == text
    return text


TARGETS["registry_file"] = lambda data: read(data, "3.json")
