"""Keys, what is wrong with names, and which photo goes into which shard."""

from __future__ import annotations

import numpy as np
import pytest

from pytrtplugins.shards.labels import LabelledPhoto
from pytrtplugins.shards.plan import held_back, plan_photos, plan_shards
from pytrtplugins.utils.file_set import FileSet


def labelled(*names):
    return [LabelledPhoto(name, np.zeros((0, 5))) for name in names]


class Files(dict):
    """Names and sizes, instead of files."""

    def state(self, name):
        return self[name], 0

    def check_alone(self, name, max_bytes):
        assert name in self


def plan(*names):
    photos, problems, _ = plan_photos(Files.fromkeys(names, 100), labelled(*names))
    return [photo.key for photo in photos], {problem.file: problem.what for problem in problems}


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (["images/b.jpg", "images/a.jpg"], ["a", "b"]),
        (["images/x/a.jpg", "images/y/a.jpg"], ["x/a", "y/a"]),
        (["a/b/c.jpg"], ["c"]),
        (["a.jpg", "x/b.jpg"], ["a", "x/b"]),
        (["v1.2/a.b.c.jpg", "v1.3/ä.jpg"], ["v1.2/a_b_c", "v1.3/ä"]),
    ],
)
def test_a_key_is_the_path_below_the_folder_of_all(names, keys):
    assert plan(*names) == (keys, {})


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("x/../../a.jpg", "'..'"),
        ("/etc/a.jpg", "begins with '/'"),
        ("a\n.jpg", "cannot be printed"),
        ("\udcff.jpg", "not UTF-8"),
        ("a" * 201 + ".jpg", "201 bytes; 200 at most"),
    ],
)
def test_names_that_are_refused(name, what):
    keys, problems = plan(name, "b.jpg")
    assert keys == ["b"]
    assert what in problems[name]


def test_photos_that_are_labelled_twice_or_missing_are_named():
    photos, problems, _ = plan_photos(Files({"a.jpg": 1}), labelled("a.jpg", "a.jpg", "b.jpg"))
    assert [photo.key for photo in photos] == ["a"]
    assert [str(problem) for problem in problems] == [
        "a.jpg: it is labelled twice", "b.jpg: the photo is missing; its labels are there",
    ]  # fmt: skip


def test_shards_are_filled_in_order_and_none_is_beyond_the_size():
    files = Files({f"{i:03d}.jpg": 300 * (i % 7 + 1) for i in range(100)})
    photos, _, _ = plan_photos(files, labelled(*files))
    shards = plan_shards(files, photos, 20_000)
    assert [photo for shard in shards for photo in shard.photos] == photos
    assert [shard.file for shard in shards] == [f"shard-{i:05d}.tar" for i in range(len(shards))]
    sizes = [sum(files[photo.file] for photo in shard.photos) for shard in shards]
    assert max(sizes) < 20_000
    assert len(plan_shards(files, photos, 1)) == 100
    assert plan_shards(files, [], 1000) == []


def test_a_digest_changes_with_what_a_shard_is_made_from(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"1")

    def digest(boxes=(), size=None):
        photo = LabelledPhoto("a.jpg", np.array(boxes, np.float64).reshape(-1, 5), size)
        photos, _, _ = plan_photos(FileSet(tmp_path), [photo])
        return plan_shards(FileSet(tmp_path), photos, 1000)[0].digest

    found = {digest(), digest([[0, 0, 0, 1, 1]]), digest([[1, 0, 0, 1, 1]]), digest(size=(3, 4))}
    assert digest() in found
    (tmp_path / "a.jpg").write_bytes(b"22")
    assert len(found | {digest()}) == 5


def test_about_the_share_is_held_back():
    keys = [f"photo{i}" for i in range(2000)]
    assert sum(held_back(key, 0.25) for key in keys) == pytest.approx(500, abs=80)
    assert not any(held_back(key, 0.0) for key in keys)
    assert all(held_back(key, 0.5) for key in keys if held_back(key, 0.25))


def test_a_photo_that_two_sources_have_is_named_unless_it_is_the_same(tmp_path):
    for source, pixels in (("x", b"1"), ("y", b"2"), ("z", b"1")):
        (tmp_path / source).mkdir()
        (tmp_path / source / "a.jpg").write_bytes(pixels)
    _, problems, _ = plan_photos(FileSet([tmp_path / "x", tmp_path / "y"]), labelled("a.jpg"))
    assert [str(each) for each in problems] == [
        f"a.jpg: other contents in {tmp_path / 'x/a.jpg'} and in {tmp_path / 'y/a.jpg'}"
    ]
    assert plan_photos(FileSet([tmp_path / "x", tmp_path / "z"]), labelled("a.jpg"))[1] == []
