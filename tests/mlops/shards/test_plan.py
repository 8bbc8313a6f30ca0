"""Keys, what is wrong with names, and which photo goes into which shard."""

import numpy as np
import pytest

from pytrtplugins.mlops.shards.plan import held_back, plan_photos, plan_shards
from pytrtplugins.mlops.shards.writer import stored_bytes
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import LabelledPhoto


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


def test_a_shard_may_be_filled_to_exactly_its_size():
    files = Files({f"{number}.jpg": 512 for number in range(4)})
    photos, _, _ = plan_photos(files, labelled(*files))
    each = stored_bytes(512, 0)
    for size, counts in ((2 * each, [2, 2]), (2 * each - 1, [1, 1, 1, 1]), (3 * each, [3, 1]), (3 * each - 1, [2, 2])):
        assert [len(shard.photos) for shard in plan_shards(files, photos, size)] == counts


def test_whether_a_photo_is_held_back_stays_the_same_between_versions():
    """Where this changes, a photo that a network was trained on becomes one that it is tested on: figures would be too good."""
    keys = [f"photos/{number}" for number in range(40)] + ["ä/b"]
    chosen = {
        share: " ".join(key.removeprefix("photos/") for key in keys if held_back(key, share)) for share in (0.1, 0.25)
    }
    assert chosen == {0.1: "0 3 25 39", 0.25: "0 2 3 5 7 12 19 22 25 39 ä/b"}
    assert (held_back("a", 0.0), held_back("a", 1.0)) == (False, True)


class States(Files):
    """Files whose size, time and place may be changed."""

    changed = 0

    def state(self, name):
        return self[name], self.changed


BOX = [[0.0, 0.25, 0.25, 0.5, 0.5]]
CHANGES = {
    "nothing": {},
    "the file's name": {"file": "b.png"},
    "the photo's bytes": {"bytes": 101},
    "the file's time": {"time": 1},
    "the stated size": {"size": (64, 49)},
    "a box": {"boxes": [[0.0, 0.25, 0.25, 0.5, 0.75]]},
    "a box's class": {"boxes": [[1.0, 0.25, 0.25, 0.5, 0.5]]},
    "how many boxes": {"boxes": BOX * 2},
}


def digest(**changes):
    """Of a shard that is planned with one photo, by which an interrupted run knows what it has."""
    values = {"file": "a.jpg", "bytes": 100, "time": 0, "size": (64, 48), "boxes": BOX, **changes}
    files = States({values["file"]: values["bytes"]})
    files.changed = values["time"]
    labels = [LabelledPhoto(values["file"], np.array(values["boxes"]), values["size"])]
    (shard,) = plan_shards(files, plan_photos(files, labels)[0], 1000)
    return shard.digest


def test_a_shard_has_another_digest_for_each_thing_that_it_is_made_from():
    digests = {what: digest(**changes) for what, changes in CHANGES.items()}
    assert len(set(digests.values())) == len(CHANGES), digests
    assert digest() == digests["nothing"]


@pytest.mark.parametrize(
    ("rows", "boxes", "cut", "left_out"),
    [
        ([0, 0, 1, 1], [0.5, 0.5, 1, 1], 0, 0),  # the whole photo
        ([-0.001, 0, 1.001, 1], [0.5, 0.5, 1, 1], 0, 0),  # labels are rounded
        ([-0.0011, 0, 1, 1], [0.5, 0.5, 1, 1], 1, 0),
        ([0, 0, 1, 1.0011], [0.5, 0.5, 1, 1], 1, 0),
        ([0.0005, 0.25, 0.5005, 0.75], [0.2505, 0.5, 0.5, 0.5], 0, 0),
        ([-0.5, 0.25, 0.5, 0.75], [0.25, 0.5, 0.5, 0.5], 1, 0),
        ([-0.5, 0, 0, 1], None, 0, 1),
        ([0.25, 0.25, 0.25, 0.5], None, 0, 1),
    ],
)
def test_boxes_are_cut_at_the_photos_edge_and_counted_where_that_is_more_than_rounding(rows, boxes, cut, left_out):
    files = Files({"a.jpg": 1})
    (photo,), _, changed = plan_photos(files, [LabelledPhoto("a.jpg", np.array([[1, *rows]]))])
    assert photo.boxes.tolist() == ([] if boxes is None else [pytest.approx([1, *boxes])])
    assert list(changed.values()) == [cut, left_out]
