"""darknet's text: where it lies, and lines that are broken."""

from __future__ import annotations

import pytest

from pytrtplugins.errors import NoDataError
from pytrtplugins.shards.labels import read_labels
from pytrtplugins.shards.labels.darknet import label_file
from pytrtplugins.utils.file_set import FileSet
from tests.shards.labels.written import CLASSES, write_darknet


@pytest.mark.parametrize(
    ("photo", "label"),
    [
        ("images/a.jpg", "labels/a.txt"),
        ("images/train/a.b.jpg", "labels/train/a.b.txt"),
        ("images/images/a.jpg", "images/labels/a.txt"),
        ("a.jpg", "a.txt"),
        ("data/obj/a.jpg", "data/obj/a.txt"),
    ],
)
def test_where_labels_lie(photo, label):
    assert label_file(photo) == label


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0 .5 .5 .1", "line 1: expected 'class x y width height', found '0 .5 .5 .1'"),
        ("0 .5 .5 .1 .1\n\n0 .5 .5 .1 wide", "line 3: expected"),
        ("0 nan .5 .1 .1", "line 1: expected"),
        ("0 .5 .5 .1 .1 .9", "line 1: expected"),
        ("3 .5 .5 .1 .1", "line 1: unknown class 3; there are 3, from 0 on"),
        ("-1 .5 .5 .1 .1", "line 1: unknown class -1"),
        ("0.5 .5 .5 .1 .1", "line 1: unknown class 0.5"),
    ],
)
def test_a_line_that_is_broken_is_named(tmp_path, text, what):
    data = write_darknet(tmp_path)
    (data / "labels/a.txt").write_text(text)
    (problem,) = read_labels(FileSet(data)).problems
    assert problem.file == "labels/a.txt"
    assert what in problem.what


def test_text_that_is_not_utf_8_is_named(tmp_path):
    data = write_darknet(tmp_path)
    (data / "labels/a.txt").write_bytes(b"\xff\xfe0")
    (problem,) = read_labels(FileSet(data)).problems
    assert "is not text" in problem.what


def test_names_that_are_missing_have_to_be_given(tmp_path):
    data = write_darknet(tmp_path)
    (data / "classes.txt").unlink()
    with pytest.raises(NoDataError, match="Do: give them with --classes"):
        read_labels(FileSet(data))
    assert read_labels(FileSet(data), classes=CLASSES).problems == []
    (data / "obj.names").write_text("\n".join(CLASSES))
    assert read_labels(FileSet(data)).classes == CLASSES


def test_a_photo_without_a_file_has_no_boxes(tmp_path):
    data = write_darknet(tmp_path)
    (data / "labels/a.txt").unlink()
    found = read_labels(FileSet(data))
    assert found.left_out["photos without a label file: no boxes"] == 1
    assert [len(photo.boxes) for photo in found.photos] == [0, 0, 1]
