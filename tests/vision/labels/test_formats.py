"""Labels of every format become the same boxes, and the format is recognized."""

import tarfile
from itertools import chain

import pytest

from pytrtplugins.errors import FormatError, NoDataError, UsageError
from pytrtplugins.mlops.shards import FORMATS, Shards, make_shards
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import read_labels
from tests.vision.labels.written import CLASSES, EXPECTED, WRITERS, write_coco, write_cvat, write_voc

pytest.importorskip("PIL")
each_format = pytest.mark.parametrize("name", WRITERS)


def boxes_of(folder):
    shards = Shards.open(folder)
    return {shards.key(n): shards.boxes(n).tolist() for n in range(len(shards))}


def check(found):
    assert list(found) == list(EXPECTED)
    for key, rows in EXPECTED.items():
        assert list(chain(*found[key])) == pytest.approx(list(chain(*rows)), abs=1e-6)


def test_every_format_is_written_here():
    assert {*WRITERS, "folders"} == set(FORMATS)  # which has no boxes: test_folders.py


@each_format
def test_the_same_labels_give_the_same_boxes(tmp_path, name):
    made = make_shards(WRITERS[name](tmp_path / "data"), tmp_path / "shards")
    assert made.labels == name
    assert made.classes == CLASSES
    check(boxes_of(tmp_path / "shards"))


@each_format
def test_a_tar_does_as_well_as_a_folder(tmp_path, name):
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        tar.add(WRITERS[name](tmp_path / "data"), arcname=".")
    assert make_shards(tmp_path / "data.tar", tmp_path / "shards").labels == name
    check(boxes_of(tmp_path / "shards"))


@each_format
def test_classes_that_are_given_choose_the_numbers(tmp_path, name):
    data = WRITERS[name](tmp_path / "data")
    made = make_shards(data, tmp_path / "shards", classes=["person", "dog", "cat", "horse"])
    assert made.classes == ("person", "dog", "cat", "horse")
    assert [row[0] for row in boxes_of(tmp_path / "shards")["a"]] == [1, 2]


@each_format
def test_a_class_that_is_not_given_is_refused_or_left_out(tmp_path, name):
    data = WRITERS[name](tmp_path / "data")
    with pytest.raises(FormatError, match=r"c\.\w+: .*unknown class 'person'") as raised:
        make_shards(data, tmp_path / "shards", classes=["cat", "dog"])
    assert len(raised.value.problems) == 1
    made = make_shards(data, tmp_path / "shards", classes=["cat", "dog"], drop_others=True)
    assert made.changed["boxes of other classes, left out"] == 1
    found = boxes_of(tmp_path / "shards")
    assert found["c"] == []
    assert len(found["a"]) == 2


@each_format
def test_a_photo_that_is_missing_is_named(tmp_path, name):
    data = WRITERS[name](tmp_path / "data")
    next(data.rglob("c.jpg")).unlink()
    if name == "darknet":  # whose labels name no photo
        assert make_shards(data, tmp_path / "shards").sets[0].photos == 2
        return
    with pytest.raises(FormatError, match=r"the photo ('c\.jpg' )?is missing"):
        make_shards(data, tmp_path / "shards")
    made = make_shards(data, tmp_path / "shards", skip_bad=True)
    assert (made.sets[0].photos, len(made.skipped)) == (2, 1)


@each_format
def test_a_list_of_stems_chooses(tmp_path, name):
    make_shards(WRITERS[name](tmp_path / "data"), tmp_path / "shards", listed=["c"])
    assert list(boxes_of(tmp_path / "shards")) == ["c"]


def test_labels_in_two_formats_need_a_choice(tmp_path):
    write_voc(tmp_path / "data")
    (tmp_path / "data/annotations.xml").write_text((write_cvat(tmp_path / "other") / "annotations.xml").read_text())
    with pytest.raises(UsageError, match=r"labels in several formats: voc .*cvat") as raised:
        make_shards(tmp_path / "data", tmp_path / "shards")
    assert "Do: choose one with --labels" in str(raised.value)
    assert make_shards(tmp_path / "data", tmp_path / "shards", labels="cvat").labels == "cvat"


def test_a_format_that_does_not_exist(tmp_path):
    with pytest.raises(UsageError, match="expected auto or one of voc, coco, darknet, cvat"):
        read_labels(FileSet(write_coco(tmp_path)), labels="yolo")


def test_photos_without_any_labels(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"")
    with pytest.raises(NoDataError, match="no labels were found among 1 files") as raised:
        read_labels(FileSet(tmp_path))
    assert "Do: look at docs/how-to/shards.md" in str(raised.value)
