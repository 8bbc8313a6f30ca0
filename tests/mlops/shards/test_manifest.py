"""A manifest is read back, and refused where it says what cannot be."""

import json

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.mlops.shards.manifest import NAME, Manifest, ShardFacts

SHARD = ShardFacts("shard-00000.tar", 2048, "ab" * 32, 1, 2)


def facts(**changes):
    shard = {"file": "a.tar", "bytes": 1, "sha256": "0" * 64, "photos": 1, "boxes": 1}
    found = {"format": "pytrtplugins shards", "version": 1, "classes": ["cat"], "shards": [shard], "made": {}}
    shard.update({key: value for key, value in changes.items() if key in shard})
    return found | {key: value for key, value in changes.items() if key not in shard}


def test_what_was_written_is_read(tmp_path):
    manifest = Manifest(("cat", "ä"), (SHARD,), {"labels": "voc"})
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest
    assert SHARD.index == "shard-00000.index.npz"


def test_a_digest_is_of_classes_and_tars():
    known = Manifest(("cat",), (SHARD,)).digest
    other = ShardFacts("b.tar", 2048, "cd" * 32, 1, 2)
    assert Manifest(("cat",), (SHARD,), {"labels": "voc"}).digest == known
    assert len({known, Manifest(("dog",), (SHARD,)).digest, Manifest(("cat",), (other,)).digest}) == 3


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"format": "x"}, "not the manifest"),
        ({"version": 2}, "pip install --upgrade"),
        ({"classes": ["cat", "cat"]}, "damaged"),
        ({"classes": [1]}, "damaged"),
        ({"classes": None}, "damaged"),
        ({"made": []}, "damaged"),
        ({"shards": {}}, "damaged"),
        ({"shards": [1]}, "damaged"),
        ({"file": "../a.tar"}, "damaged"),
        ({"file": "/a.tar"}, "damaged"),
        ({"file": ".a.tar"}, "damaged"),
        ({"file": "a.zip"}, "damaged"),
        ({"bytes": -1}, "damaged"),
        ({"bytes": 1.5}, "damaged"),
        ({"photos": True}, "damaged"),
        ({"boxes": 1 << 70}, "damaged"),
        ({"sha256": "0" * 63}, "damaged"),
        ({"sha256": None}, "damaged"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, changes, what):
    (tmp_path / NAME).write_text(json.dumps(facts()))
    Manifest.read(tmp_path)
    (tmp_path / NAME).write_text(json.dumps(facts(**changes)))
    with pytest.raises(FormatError, match=what) as raised:
        Manifest.read(tmp_path)
    assert raised.value.path == tmp_path / NAME


def test_two_shards_of_one_name_are_refused(tmp_path):
    held = facts()
    (tmp_path / NAME).write_text(json.dumps({**held, "shards": held["shards"] * 2}))
    with pytest.raises(FormatError, match="damaged"):
        Manifest.read(tmp_path)
