"""An index is read back as it was written, and refused where it does not agree with itself."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.mlops.shards.index import Index
from pytrtplugins.mlops.shards.writer import make_index


def index() -> Index:
    boxes = [np.array([[1, 0.5, 0.5, 0.1, 0.2]], np.float32), np.zeros((0, 5), np.float32)]
    return make_index(4096, [(512, 100), (2048, 50)], [1, 2], ["a", "ä/b"], boxes)


def test_what_was_written_is_read(tmp_path):
    index().write(tmp_path / "x.npz")
    found = Index.read(tmp_path / "x.npz", classes=2, tar_bytes=4096)
    assert (found.tar_bytes, found.keys, len(found)) == (4096, ("a", "ä/b"), 2)
    for name in ("photos", "checksums", "boxes", "box_ends"):
        np.testing.assert_array_equal(getattr(found, name), getattr(index(), name))
    assert (len(found.boxes_of(0)), len(found.boxes_of(1))) == (1, 0)


def test_a_photo_may_end_where_the_tar_does(tmp_path):
    make_index(4096, [(512, 3584)], [1], ["a"], [np.zeros((0, 5), np.float32)]).write(tmp_path / "x.npz")
    assert Index.read(tmp_path / "x.npz", classes=1, tar_bytes=4096).photos.tolist() == [[512, 3584]]


def test_the_same_index_gives_the_same_bytes(tmp_path):
    for name in "ab":
        index().write(tmp_path / f"{name}.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def head(**more):
    facts = {"format": "pytrtplugins shard index", "version": 1, "tar_bytes": 4096, **more}
    return np.frombuffer(json.dumps(facts).encode(), np.uint8)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"photos": np.array([[512, 100], [4000, 97]])}, "outside its tar"),
        ({"photos": np.array([[512, 100], [2048, 1 << 62]])}, "outside its tar"),
        ({"photos": np.array([[512, 100], [-5, 50]])}, "outside its tar"),
        ({"photos": np.array([[512, 100], [2048, -1]])}, "outside its tar"),
        ({"photos": np.array([[512, 100, 1], [2048, 50, 1]])}, "different lengths"),
        ({"photos": np.array([[512.0, 100], [2048, 50]])}, "another type"),
        ({"checksums": np.array([1], np.uint32)}, "different lengths"),
        ({"box_ends": np.array([1, 2])}, "do not add up"),
        ({"box_ends": np.array([2, 1])}, "do not add up"),
        ({"key_ends": np.array([-1, 5])}, "do not add up"),
        ({"keys": np.frombuffer(b"a\xff\xffbc", np.uint8)}, "UTF-8"),
        ({"boxes": np.array([[2, 0.5, 0.5, 0.1, 0.2]], np.float32)}, "not one of 2"),
        ({"boxes": np.array([[0.5, 0.5, 0.5, 0.1, 0.2]], np.float32)}, "not one of 2"),
        ({"boxes": np.array([[1, np.nan, 0.5, 0.1, 0.2]], np.float32)}, "not finite"),
        ({"head": head(version=2)}, "pip install --upgrade"),
        ({"head": head(tar_bytes=None)}, "not the index of a shard"),
        ({"head": np.frombuffer(b"[", np.uint8)}, "not JSON"),
        ({"head": None}, "'head' is missing"),
    ],
)
def test_an_index_that_does_not_agree_with_itself(tmp_path, changes, what):
    path = tmp_path / "x.index.npz"
    index().write(path)
    with np.load(path) as held:
        arrays = {**held, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(FormatError, match=what) as raised:
        Index.read(path, classes=2, tar_bytes=4096)
    assert raised.value.path == path


def test_an_index_of_more_memory_than_its_tar_has_bytes_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "x.index.npz"
    arrays = {"photos": np.full((100_000, 2), 512), "keys": np.zeros(1_000_000, np.uint8)}
    np.savez_compressed(path, head=head(), **arrays)
    assert path.stat().st_size < 20_000
    with pytest.raises(FormatError, match=r"its arrays take 2,60\d,\d{3} bytes of memory; the limit is 20,480"):
        Index.read(path, classes=2, tar_bytes=4096)
