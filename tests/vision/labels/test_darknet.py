"""darknet's text: where it lies, and lines that are broken."""

import pytest

from pytrtplugins.errors import FormatError, NoDataError, UsageError
from pytrtplugins.models import YoloData
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import read_labels
from pytrtplugins.vision.labels.darknet import label_file
from tests.vision.labels.written import CLASSES, write_darknet


@pytest.mark.parametrize(
    ("photo", "label"),
    [
        ("images/a.jpg", "labels/a.txt"),
        ("images/train/a.b.jpg", "labels/train/a.b.txt"),
        ("images/images/a.jpg", "images/labels/a.txt"),
        ("a.jpg", "a.txt"),
        ("VOC/JPEGImages/a.jpg", "VOC/labels/a.txt"),
        ("photos/a.jpg", "photos/a.txt"),
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
        (b"\xff\xfe0", "is not text"),
    ],
)
def test_a_line_that_is_broken_is_named(tmp_path, text, what):
    data = write_darknet(tmp_path)
    (data / "labels/a.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    (problem,) = read_labels(FileSet(data)).problems
    assert problem.file == "labels/a.txt"
    assert what in problem.what


def test_names_that_are_missing_have_to_be_given(tmp_path):
    data = write_darknet(tmp_path)
    (data / "classes.txt").unlink()
    with pytest.raises(NoDataError, match="Do: give them with --names"):
        read_labels(FileSet(data))
    assert read_labels(FileSet(data), classes=CLASSES).problems == []
    (data / "obj.names").write_text("\n".join(CLASSES))
    assert read_labels(FileSet(data)).classes == CLASSES


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("cat\n\ndog\nperson\n", "classes.txt: line 2 is blank, which darknet counts as a class without a name"),
        ("cat\ndog\ncat\n", "classes.txt: 'cat' is the name of the classes 0 and 2"),
    ],
)
def test_names_that_would_change_numbers_are_refused_by_all_commands(tmp_path, text, what):
    data = write_darknet(tmp_path)
    (data / "classes.txt").write_text(text)
    for read in (lambda: read_labels(FileSet(data)), lambda: YoloData(data)):
        with pytest.raises(FormatError, match=what):
            read()


def test_two_lists_of_other_names_are_refused(tmp_path):
    data = write_darknet(tmp_path)
    (data / "obj.names").write_text("\n".join(CLASSES) + "\n\n")
    assert read_labels(FileSet(data)).classes == CLASSES
    (data / "obj.names").write_text("\n".join(reversed(CLASSES)))
    with pytest.raises(FormatError, match=r"classes\.txt and obj\.names name other classes"):
        read_labels(FileSet(data))


def test_classes_that_differ_in_case_only_keep_their_numbers(tmp_path):
    data = write_darknet(tmp_path)
    (data / "classes.txt").write_text("cat\nCat\nCAT\n")
    annotations = read_labels(FileSet(data))
    assert annotations.classes == ("cat", "Cat", "CAT")
    assert [row[0] for each in annotations.photos for row in each.boxes.tolist()] == [1, 0, 2]
    annotations = read_labels(FileSet(data), classes=("CAT", "cat", "Cat"))
    assert [row[0] for each in annotations.photos for row in each.boxes.tolist()] == [2, 1, 0]


def test_classes_that_are_given_twice_are_refused(tmp_path):
    with pytest.raises(UsageError, match="'cat' is the name of the classes 0 and 1"):
        read_labels(FileSet(write_darknet(tmp_path)), classes=("cat", "cat", "dog"))


def test_a_photo_without_a_file_has_no_boxes(tmp_path):
    data = write_darknet(tmp_path)
    (data / "labels/a.txt").unlink()
    annotations = read_labels(FileSet(data))
    assert annotations.left_out["photos without a label file: no boxes"] == 1
    assert [len(photo.boxes) for photo in annotations.photos] == [0, 0, 1]
