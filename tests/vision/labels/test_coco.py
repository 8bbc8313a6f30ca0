"""COCO's JSON, compared with what pycocotools reads, and what is wrong with others."""

import contextlib
import io
import json
import re
from itertools import chain

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import read_labels
from pytrtplugins.vision.labels.coco import _id
from tests.vision.labels.written import CLASSES, SIZE, coco_facts, write_coco


@pytest.fixture
def data(tmp_path):
    return write_coco(tmp_path / "data")


def rewrite(data, change):
    facts = coco_facts()
    change(facts)
    (data / "annotations/instances_default.json").write_text(json.dumps(facts))
    return FileSet(data)


def test_boxes_are_those_that_pycocotools_reads(data):
    coco = pytest.importorskip("pycocotools.coco").COCO
    with contextlib.redirect_stdout(io.StringIO()):
        known = coco(str(data / "annotations/instances_default.json"))
    found = {photo.file.rpartition("/")[2]: photo for photo in read_labels(FileSet(data)).photos}
    assert len(found) == len(known.getImgIds())
    for image in known.loadImgs(known.getImgIds()):
        rows = known.loadAnns(known.getAnnIds(imgIds=image["id"]))
        boxes = found[image["file_name"]].boxes * [1, *SIZE, *SIZE]
        names = [CLASSES[int(number)] for number in boxes[:, 0]]
        assert names == [known.cats[row["category_id"]]["name"] for row in rows]
        corners = [[x, y, x + w, y + h] for x, y, w, h in (row["bbox"] for row in rows)]
        assert boxes[:, 1:].ravel() == pytest.approx(list(chain(*corners)))


def test_classes_have_the_order_of_their_ids(data):
    files = rewrite(data, lambda facts: facts["categories"].append({"id": 1, "name": "zebra"}))
    assert read_labels(files).classes == ("zebra", *CLASSES)


def test_crowds_are_left_out_and_counted(data):
    found = read_labels(
        rewrite(data, lambda facts: facts["annotations"][0].update(iscrowd=1, segmentation={"counts": []}))
    )
    assert found.left_out["boxes of crowds, left out"] == 1
    assert sum(len(photo.boxes) for photo in found.photos) == 2


def test_instances_win_over_other_files(data):
    (data / "annotations/person_keypoints_default.json").write_text(json.dumps(coco_facts()))
    assert len(read_labels(FileSet(data)).photos) == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda facts: facts["annotations"][0].update(category_id=5), "annotation 0: unknown category 5"),
        (lambda facts: facts["annotations"][0].update(category_id=[]), r"unknown category \[\]"),
        (lambda facts: facts["annotations"][0].update(bbox=[1, 2, 3]), "expected a bbox of 4 numbers"),
        (lambda facts: facts["annotations"][0].update(bbox=[1, 2, 3, "x"]), "expected a bbox of 4 numbers"),
        (lambda facts: facts["annotations"][0].update(bbox=None), "expected a bbox of 4 numbers, found None"),
        (
            lambda facts: facts["annotations"][0].update(image_id=99),
            "1 annotations are of images that it does not list",
        ),
        (lambda facts: facts["images"][0].pop("file_name"), "the image 10: expected a file_name, found None"),
    ],
)
def test_what_is_wrong_with_a_photo_is_said(data, change, what):
    problems = " ".join(map(str, read_labels(rewrite(data, change)).problems))
    assert re.search(what, problems), problems


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.update(images={}),
        lambda facts: facts.update(annotations=[1]),
        lambda facts: facts["annotations"].append(1),
        lambda facts: facts["categories"][0].pop("id"),
        lambda facts: facts["categories"][0].update(name=3),
        lambda facts: facts["categories"][0].update(id=[1]),
        lambda facts: facts["categories"][0].update(id={}),
    ],
)
def test_a_file_of_another_form_is_refused(data, change):
    with pytest.raises(FormatError, match="export the labels again"):
        read_labels(rewrite(data, change))


def test_a_truncated_file_is_refused(data):
    path = data / "annotations/instances_default.json"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FormatError, match="not JSON"):
        read_labels(FileSet(data))


@pytest.mark.parametrize(
    ("value", "key"),
    [(7, 7), (7.0, 7), (7.5, None), ("7", 7), ("007", 7), ("a7", "a7"), ("-7", "-7"), ("\u0667", "\u0667"), ("", None),
     (True, None), (None, None), ([7], None), ("9" * 5000, "9" * 5000)],
)  # fmt: skip
def test_an_id_is_the_same_as_a_number_and_as_a_text(value, key):
    found = _id(value)
    assert (found, type(found)) == (key, type(key))
