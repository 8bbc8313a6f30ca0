"""Photos where they lie are read as shards are."""

import pytest

from pytrtplugins.errors import FormatError, NoDataError
from pytrtplugins.mlops.shards import PhotoSet, Shards, make_shards, open_photos
from tests.mlops.shards.photos import CLASSES, make_set

pytest.importorskip("PIL")


def all_of(photos):
    return [(each.key, each.image, each.boxes.tolist()) for each in map(photos.read, range(len(photos)))]


def test_a_folder_gives_what_its_shards_give(tmp_path):
    data = make_set(tmp_path / "data", 9)
    make_shards(data, tmp_path / "shards")
    folder, shards = open_photos(data), open_photos(tmp_path / "shards")
    assert isinstance(folder, PhotoSet)
    assert isinstance(shards, Shards)
    assert (folder.labels, folder.classes, folder.problems) == ("darknet", CLASSES, ())
    assert all_of(folder) == all_of(shards)
    assert [folder.key(n) for n in range(9)] == [shards.key(n) for n in range(9)]
    assert folder.boxes(5).tolist() == shards.boxes(5).tolist()


def test_a_list_of_the_set_chooses(tmp_path):
    data = make_set(tmp_path / "data", 5)
    assert [key for key, *_ in all_of(PhotoSet.open(data, listed="train.txt"))] == ["p0", "p2", "p4"]


def test_photos_without_labels_have_no_boxes(tmp_path):
    photos = open_photos(make_set(tmp_path / "data", 3) / "images", "none")
    assert (len(photos), photos.classes) == (3, ())
    assert [rows for *_, rows in all_of(photos)] == [[], [], []]


def test_what_cannot_be_used_is_left_out_and_said(tmp_path):
    data = make_set(tmp_path / "data", 3)
    (data / "labels/p1.txt").write_text("9 .5 .5 .1 .1\n")
    photos = PhotoSet.open(data)
    assert len(photos) == 2
    assert [problem.file for problem in photos.problems] == ["labels/p1.txt"]


def test_why_no_photo_can_be_used_is_said(tmp_path):
    data = make_set(tmp_path / "data", 2)
    for path in (data / "labels").iterdir():
        path.write_text("9 .5 .5 .1 .1\n")
    with pytest.raises(
        FormatError, match=r"none of the photos can be used:\n  labels/p0\.txt: line 1: unknown class 9"
    ) as raised:
        PhotoSet.open(data)
    assert len(raised.value.problems) == 2


def test_a_folder_without_photos(tmp_path):
    with pytest.raises(NoDataError, match="no photos that can be used"):
        PhotoSet.open(tmp_path, labels="none")
