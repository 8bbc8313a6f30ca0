"""CVAT's XML: labels in their order, shapes that are no boxes, boxes that are turned, and damage."""

import math

import numpy as np
import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import read_labels
from tests.vision.labels.written import BOXES, CLASSES, SIZE, cvat_xml, write_cvat


@pytest.fixture
def data(tmp_path):
    return write_cvat(tmp_path / "data")


def rewrite(data, text):
    (data / "annotations.xml").write_text(text)
    return FileSet(data)


def test_labels_that_no_box_has_are_classes_too(data):
    found = read_labels(rewrite(data, cvat_xml({"a": BOXES["a"], "b": [], "c": []})))
    assert found.classes == CLASSES


def test_parts_of_skeletons_are_no_classes(data):
    text = cvat_xml().replace("</labels>", "<label><name>elbow</name><parent>person</parent></label></labels>")
    assert read_labels(rewrite(data, text)).classes == CLASSES


def test_other_shapes_are_left_out_and_counted(data):
    shapes = ("polygon", "polyline", "points", "ellipse", "mask", "skeleton", "cuboid")
    others = "".join(f'<{shape} label="cat" points="0,0;1,1;0,1"/>' for shape in shapes)
    text = cvat_xml().replace("</image>", f'{others}<tag label="dog"/></image>')
    found = read_labels(rewrite(data, text))
    assert found.left_out["shapes that are not boxes, left out"] == 3 * len(shapes)
    assert sum(len(photo.boxes) for photo in found.photos) == 3


def test_a_turned_box_becomes_the_upright_one_around_it(data):
    angle = 30
    text = cvat_xml({"a": [("dog", 10, 8, 26, 12)], "b": [], "c": []}).replace(
        'z_order="0"', f'z_order="0" rotation="{angle}"'
    )
    (row,) = next(photo for photo in read_labels(rewrite(data, text)).photos if photo.file.endswith("a.jpg")).boxes
    turn = np.array([[math.cos(math.radians(angle)), -math.sin(math.radians(angle))],
                     [math.sin(math.radians(angle)), math.cos(math.radians(angle))]])  # fmt: skip
    corners = np.array([[-8, -2], [8, -2], [8, 2], [-8, 2]]) @ turn.T + [18, 10]
    expected = [*corners.min(0), *corners.max(0)]
    assert (row[1:] * [*SIZE, *SIZE]).tolist() == pytest.approx(expected)


def test_tracks_of_a_video_are_refused(data):
    with pytest.raises(FormatError, match="Do: export the task from CVAT as 'CVAT for images"):
        read_labels(rewrite(data, cvat_xml(more='<track id="0" label="cat"><box frame="0"/></track>')))


def test_every_file_of_a_task_in_many_jobs_is_read(data):
    for number in range(7):
        (data / f"job{number}.xml").write_text(cvat_xml({"a": BOXES["a"]} if number == 6 else {}))
    (data / "annotations.xml").unlink()
    assert [photo.file for photo in read_labels(FileSet(data)).photos] == ["images/a.jpg"]


def test_a_truncated_file_is_refused_with_its_line(data):
    with pytest.raises(FormatError, match="not XML: unclosed token in line 1") as raised:
        read_labels(rewrite(data, cvat_xml()[:-30]))
    assert raised.value.line == 1


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('xtl="4.00"', 'xtl="left"', "expected a number as xtl, found 'left'"),
        ('xtl="4.00"', 'xtl="inf"', "expected a number as xtl, found 'inf'"),
        ('xtl="4.00"', "", "expected a number as xtl, found ''"),
        ('name="a.jpg" width="40"', 'name="a.jpg" width="0"', "a size of 0 x 20"),
        ('box label="dog"', 'box label="cow"', "unknown class 'cow'; known are"),
        ('box label="dog"', 'box label=" "', "a box whose class has no name"),
    ],
)
def test_what_is_wrong_with_a_photo_is_said(data, old, new, what):
    text = cvat_xml()
    assert old in text
    (problem,) = read_labels(rewrite(data, text.replace(old, new))).problems
    assert problem.file == "images/a.jpg"
    assert what in problem.what
