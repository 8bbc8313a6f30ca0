"""Targets for sets of shards, and for the labels that they are made of."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path

import numpy as np

from pytrtplugins.errors import FormatError
from pytrtplugins.mlops.shards import Shards, check_shards
from pytrtplugins.mlops.shards.index import Index
from pytrtplugins.mlops.shards.writer import ShardWriter
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.utils.files import sha256_hex
from pytrtplugins.vision.labels import read_labels
from pytrtplugins.vision.labels.parts import part_photos
from pytrtplugins.vision.labels.photo_files import PhotoFiles
from tests.fuzz.files import folder
from tests.fuzz.registry import TARGETS, target
from tests.mlops.shards.photos import photo

CLASSES = ("cat", "dog")
TAR, INDEX = "shard-00000.tar", "shard-00000.index.npz"


def manifest(tar: bytes, photos: int, boxes: int) -> bytes:
    """The manifest of a set of one shard."""
    shard = {"file": TAR, "bytes": len(tar), "sha256": sha256_hex(tar), "photos": photos, "boxes": boxes}
    facts = {"format": "pytrtplugins shards", "version": 1, "classes": CLASSES, "shards": [shard], "made": {}}
    return json.dumps(facts).encode()


@functools.cache
def sound() -> dict[str, bytes]:
    """The files of a set of two photos."""
    buffer, place = io.BytesIO(), folder() / "sound"
    place.mkdir(exist_ok=True)
    writer = ShardWriter(buffer, CLASSES)
    for number in range(2):
        boxes = np.array([[number, 0.5, 0.5, 0.25, 0.5]] * number, np.float32).reshape(-1, 5)
        writer.add(f"p{number}", "png", photo(number, (3, 2), "PNG"), (3, 2), boxes)
    index, _ = writer.finish()
    index.write(place / INDEX)
    tar = buffer.getvalue()
    return {TAR: tar, INDEX: (place / INDEX).read_bytes(), "shards.json": manifest(tar, 2, 1)}


def written(**changed: bytes) -> Path:
    """The set with other files in it."""
    place = folder() / "set"
    place.mkdir(exist_ok=True)
    for name, data in {**sound(), **changed}.items():
        (place / name).write_bytes(data)
    return place


def read_all(place: Path) -> object:
    """Every photo of a set."""
    shards = Shards.open(place)
    return [shards.read(number) for number in range(len(shards))]


@target
def shard_index(data: bytes) -> object:
    """An index, alone and in its set."""
    place = written(**{INDEX: data})
    Index.read(place / INDEX, len(CLASSES), (place / TAR).stat().st_size)
    return read_all(place)


@target
def shard_tar(data: bytes) -> object:
    """A tar whose checksum is right, checked as a whole; the index is made of it."""
    place = written(**{TAR: data, "shards.json": manifest(data, 2, 1)})
    (place / INDEX).unlink()
    found = check_shards(place, repair=True, workers=1, progress=False)
    if not found.ok:
        raise FormatError(str(found.problems[0])[:300])
    return read_all(place)


def labels_of(name: str, data: bytes, kind: str) -> object:
    """The labels of two photos."""
    place = folder() / kind
    place.mkdir(exist_ok=True)
    for file in ("a.png", "b.png"):
        (place / file).write_bytes(b"")
    (place / name).write_bytes(data)
    found = read_labels(FileSet(place), labels=kind)
    if found.problems:
        raise FormatError(str(found.problems[0])[:300])
    assert all(each.boxes.shape[1:] == (5,) for each in found.photos)
    return found


@target
def data_yaml(data: bytes) -> object:
    """A data.yaml in a set, with the photos of its parts."""
    place = folder() / "described"
    for name in ("train/images/a.png", "valid/images/b.png", "list.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("train/images/a.png")
    (place / "data.yaml").write_bytes(data)
    files = FileSet(place)
    photos = PhotoFiles(files)
    description = files.description
    assert description is not None
    return [part_photos(files, photos, part) for part in description.parts]


@target
def darknet_labels(data: bytes) -> object:
    """darknet's labels of a photo; behind a first byte ``c`` the names of the classes."""
    place = folder() / "darknet"
    place.mkdir(exist_ok=True)
    (place / "classes.txt").write_bytes(data[1:] if data[:1] == b"c" else b"cat\ndog\n")
    return labels_of("a.txt", b"0 0.5 0.5 0.2 0.2\n" if data[:1] == b"c" else data, "darknet")


TARGETS |= {
    "shard_manifest": lambda data: read_all(written(**{"shards.json": data})),
    "voc_labels": lambda data: labels_of("a.xml", data, "voc"),
    "coco_labels": lambda data: labels_of("labels.json", data, "coco"),
    "cvat_labels": lambda data: labels_of("labels.xml", data, "cvat"),
}
