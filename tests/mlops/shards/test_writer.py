"""The bytes of a set of shards, which must not change: programs of others read them, and trainings know a set by its digest.

Where one of these values changes, the same photos have another digest: an interrupted training refuses its shards, and a registry calls
a model's data changed. That needs a new version of the format.
"""

import hashlib
import io

import numpy as np
import pytest

from pytrtplugins.mlops.shards.index import Index
from pytrtplugins.mlops.shards.manifest import NAME, Manifest, ShardFacts
from pytrtplugins.mlops.shards.writer import ShardWriter, label_text, stored_bytes

BOXES = np.array([[1, 0.5, 0.25, 0.1, 0.2], [0, 1 / 3, 0.5, 0.125, 1]], np.float32)
GOLDEN = "73b5f9030beba18a2995e86d4f2e16729ebbf9ae7f207bb865f5448d07a1b703"
CONTENT = "19a87cf519994969b5f23d84f2c0eace50e2b8722a6f32cda11557d7e9e4f59e"
SIZE, PLACES = 11776, [[512, 513], [4096, 512], [8192, 1]]
LONG = "ä" * 60 + "/" + "b" * 60  # beyond the 100 bytes that a header of ustar has


def written():
    file = io.BytesIO()
    writer = ShardWriter(file, ("cat", "dög"))
    for key, image, boxes in (("a", b"x" * 513, BOXES), ("ä/b", b"y" * 512, BOXES[:0]), (LONG, b"z", BOXES[:1])):
        writer.add(key, "jpg", image, (64, 48), boxes)
    index, digest = writer.finish()
    return file.getvalue(), index, digest


def test_the_text_beside_a_photo_is_what_it_was():
    assert label_text((64, 48), BOXES, ("cat", "dög")).decode() == (
        '{"width": 64, "height": 48, "boxes": [[1, 0.5, 0.25, 0.1, 0.2], [0, 0.33333334, 0.5, 0.125, 1.0]], '
        '"names": ["dög", "cat"]}'
    )


def test_a_tar_has_the_bytes_that_it_had_and_is_as_large_as_it_was_planned():
    data, index, digest = written()
    assert hashlib.sha256(data).hexdigest() == digest == GOLDEN
    assert (index.tar_bytes, len(data)) == (len(data), SIZE)
    assert [data[offset : offset + size] for offset, size in index.photos] == [b"x" * 513, b"y" * 512, b"z"]
    assert index.photos.tolist() == PLACES
    planned = stored_bytes(513, 2) + stored_bytes(512, 0)
    assert planned == 2 * 512 + 1024 + 512 + 2 * 512 + 512 + 512
    boxes = np.column_stack([np.zeros(500), np.random.default_rng(0).random((500, 4))]).astype(np.float32)
    assert stored_bytes(0, 500) == pytest.approx(len(label_text((640, 480), boxes, ("person",))), rel=0.25)


def test_an_index_has_the_arrays_that_it_had(tmp_path):
    written()[1].write(tmp_path / "index.npz")
    with np.load(tmp_path / "index.npz") as arrays:
        found = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
        content = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()
        head = arrays["head"].tobytes()
    assert head == b'{"format": "pytrtplugins shard index", "version": 1, "tar_bytes": %d}' % SIZE
    assert found == {
        "head": ("|u1", (len(head),)),
        "photos": ("<i8", (3, 2)),
        "checksums": ("<u4", (3,)),
        "keys": ("|u1", (1 + 4 + 181,)),
        "key_ends": ("<i8", (3,)),
        "boxes": ("<f4", (3, 5)),
        "box_ends": ("<i8", (3,)),
    }
    assert content == CONTENT
    again = Index.read(tmp_path / "index.npz", 2, SIZE)
    assert again.keys == ("a", "ä/b", LONG)


def test_a_manifest_has_the_text_that_it_had(tmp_path):
    manifest = Manifest(("cat", "dög"), (ShardFacts("shard-00000.tar", 2048, "ab" * 32, 1, 2),), {"labels": "voc"})
    manifest.write(tmp_path)
    assert (tmp_path / NAME).read_text("utf-8") == (
        '{\n "format": "pytrtplugins shards",\n "version": 1,\n "classes": [\n  "cat",\n  "dög"\n ],\n'
        ' "shards": [\n  {\n   "file": "shard-00000.tar",\n   "bytes": 2048,\n   "sha256": "%s",\n'
        '   "photos": 1,\n   "boxes": 2\n  }\n ],\n "made": {\n  "labels": "voc"\n }\n}\n'
    ) % ("ab" * 32)
    assert manifest.digest == hashlib.sha256(b'[["cat", "d\\u00f6g"], ["%s"]]'.replace(b"%s", b"ab" * 32)).hexdigest()
