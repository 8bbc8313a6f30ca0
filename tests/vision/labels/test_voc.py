"""VOC's XML: corners from 1 on, and what writers of it do differently."""

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.mlops.shards import Shards, make_shards
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import read_labels
from tests.vision.labels.written import SIZE, voc_xml, write_cvat, write_voc

pytest.importorskip("PIL")
BOMB = '<!DOCTYPE a [<!ENTITY x "aaaaaaaaaa"><!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;">]><annotation><filename>&y;</filename></annotation>'


@pytest.fixture
def data(tmp_path):
    return write_voc(tmp_path / "data")


def problems(data):
    return [str(each) for each in read_labels(FileSet(data), labels="voc").problems]


def rewrite(data, text, name="c"):
    (data / "Annotations" / f"{name}.xml").write_text(text)


def test_the_first_pixel_is_one_and_zero_stays_zero(data):
    box = "<object><name>dog</name><bndbox><xmin>1</xmin><ymin>0</ymin><xmax>40</xmax><ymax>20</ymax></bndbox></object>"
    rewrite(data, voc_xml("c", [], more=box))
    annotations = {photo.file: photo for photo in read_labels(FileSet(data)).photos}
    assert annotations["JPEGImages/c.jpg"].boxes[:, 1:].tolist() == [[0, 0, 1, 1]]
    assert annotations["JPEGImages/c.jpg"].size == SIZE


def test_a_size_of_zero_is_read_from_the_photo(data):
    rewrite(data, voc_xml("c", [("dog", 10, 5, 20, 10)], size=(0, 0)))
    annotations = {photo.file: photo for photo in read_labels(FileSet(data)).photos}
    assert annotations["JPEGImages/c.jpg"].boxes[:, 1:].tolist() == [[0.25, 0.25, 0.5, 0.5]]


def test_a_photo_with_another_name_than_its_labels_is_found_by_what_they_say(data):
    (data / "Annotations/c.xml").rename(data / "Annotations/000007.xml")
    assert sorted(photo.file for photo in read_labels(FileSet(data)).photos)[-1] == "JPEGImages/c.jpg"


def test_difficult_boxes_and_photos_without_labels_are_counted(data):
    rewrite(data, voc_xml("a", [("dog", 0, 0, 4, 4)]).replace("<difficult>0", "<difficult>1"), "a")
    (data / "Annotations/b.xml").unlink()
    annotations = read_labels(FileSet(data))
    assert annotations.left_out["difficult boxes, kept"] == 1
    assert annotations.left_out["photos without labels, left out"] == 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (voc_xml("c", [])[:-20], "not XML: no element found in line 1"),
        ("<annotation><a></annotation>", "not XML: mismatched tag in line 1"),
        ("", "not XML: no element found"),
        (voc_xml("c", [("", 0, 0, 4, 4)]), "a box whose class has no name"),
        (voc_xml("c", [], size=("inf", 4)), "a size of inf x 4"),
        (BOMB, "a DOCTYPE"),
        ("<annotation>" + "<a>" * 100 + "</a>" * 100 + "</annotation>", "nested more than 64 deep"),
        ('<?xml version="1.0" encoding="no-such"?><annotation/>', "unknown encoding"),
        (voc_xml("c", [], more="<object><name>dog</name></object>"), "an object without <bndbox>"),
        (
            voc_xml("c", [("dog", 0, 0, 4, 4)]).replace("<xmax>4<", "<xmax>wide<"),
            "expected a number in <xmax>, found 'wide'",
        ),
        (
            voc_xml("c", [("dog", 0, 0, 4, 4)]).replace("<xmax>4</xmax>", ""),
            "expected a number in <xmax>, found nothing",
        ),
        (voc_xml("c", [("dog", 0, 0, 4, 4)]).replace("<xmax>4<", "<xmax>nan<"), "not a finite number"),
    ],
)
def test_labels_that_cannot_be_used_are_named(data, text, what):
    rewrite(data, text)
    (problem,) = problems(data)
    assert problem.startswith("Annotations/c.xml: ")
    assert what in problem


def test_a_photo_of_other_proportions_than_its_labels_is_refused(data):
    rewrite(data, voc_xml("c", [("dog", 1, 1, 10, 10)], size=(20, 40)))
    with pytest.raises(FormatError, match=r"JPEGImages/c\.jpg: 40 x 20 pixels; its labels are for 20 x 40"):
        make_shards(data, data.parent / "shards")


def test_a_photo_that_was_made_smaller_since_is_taken(data):
    rewrite(data, voc_xml("c", [("dog", 20, 10, 40, 20)], size=(80, 41)))
    make_shards(data, data.parent / "shards")
    assert Shards.open(data.parent / "shards").boxes(2).ravel().tolist() == pytest.approx(
        [1, 0.375, 15 / 41, 0.25, 10 / 41]
    )


@pytest.mark.parametrize(("size", "count"), [(4 << 20, 0), ((4 << 20) + 1, 1)])
def test_labels_of_a_photo_may_have_4_mib(data, size, count):
    rewrite(data, voc_xml("c", [("dog", 10, 5, 20, 10)]).ljust(size))
    assert len(problems(data)) == count


def test_a_large_file_of_another_format_is_none_of_these(tmp_path, monkeypatch):
    monkeypatch.setattr("pytrtplugins.vision.labels.voc._MAX_BYTES", 100)
    assert read_labels(FileSet(write_cvat(tmp_path))).format == "cvat"


def test_two_photos_that_differ_in_their_suffix_are_told_apart_by_the_file_name(data):
    (data / "JPEGImages/c.png").write_bytes((data / "JPEGImages/c.jpg").read_bytes())
    annotations = read_labels(FileSet(data))
    assert (annotations.problems, annotations.photos[-1].file) == ([], "JPEGImages/c.jpg")
    rewrite(data, voc_xml("d", []))
    (problem,) = problems(data)
    assert "Annotations/c.xml may be the labels of JPEGImages/c.jpg or JPEGImages/c.png" in problem


def test_photos_that_are_missing_do_not_matter_where_a_list_leaves_them_out(data):
    (data / "JPEGImages/c.jpg").unlink()
    assert read_labels(FileSet(data), listed=["a", "b"]).problems == []
