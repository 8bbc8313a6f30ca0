"""Labels may be drawn on photos as they are shown or as they are stored; boxes in shards are those of the photo as it is shown."""

from __future__ import annotations

import json
from itertools import product

import pytest

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.mlops.shards import PhotoSet, Shards, make_shards
from pytrtplugins.models import YoloData
from pytrtplugins.vision import decode_image
from tests.mlops.shards.turned import STORED, corners, form, turned, white
from tests.vision.labels.written import voc_xml


def write(folder, orientation, exif):
    """A set in darknet's format; labels are drawn on what ``exif`` says."""
    data = turned(orientation)
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    (folder / "images/a.png").write_bytes(data)
    (folder / "labels/a.txt").write_text(" ".join(map(str, white(data, exif))))
    (folder / "classes.txt").write_text("box\n")
    (folder / "val.txt").write_text("images/a.png\n")
    return folder


@pytest.mark.parametrize(("orientation", "exif"), list(product(range(1, 9), ("shown", "stored"))))
def test_boxes_are_on_the_photo_as_it_is_shown_in_all_commands(tmp_path, orientation, exif):
    data = write(tmp_path / "data", orientation, exif)
    expected = pytest.approx(white(turned(orientation), "shown"), abs=1e-6)
    manifest = make_shards(data, tmp_path / "shards", exif=exif, progress=False)
    assert manifest.changed.get("photos that EXIF says are not upright", 0) == (orientation > 1)
    assert Shards.open(tmp_path / "shards").boxes(0)[0].tolist() == expected
    make_shards(data, tmp_path / "upright", exif=exif, longest_side=64, progress=False)
    example = Shards.open(tmp_path / "upright").read(0)
    assert example.boxes[0].tolist() == expected
    if orientation > 1:
        assert white(example.image, "stored") == pytest.approx(example.boxes[0].tolist(), abs=0.03)  # JPEG
    photos = PhotoSet.open(data, exif=exif)
    assert photos.read(0).boxes[0].tolist() == expected
    assert photos.boxes(0)[0].tolist() == expected
    labelled = YoloData(data, exif=exif)
    (name,) = labelled.images()
    assert labelled.boxes(name)[0].tolist() == expected
    assert labelled.image(name).shape == decode_image(turned(orientation)).shape


def write_voc(folder, image: bytes, exif: str, size=None):
    """A set in VOC's format, whose labels are drawn on that form of the photo, and state its size."""
    for name in ("Annotations", "JPEGImages"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "JPEGImages/a.jpg").write_bytes(image)
    labels = voc_xml("a", [("box", *corners(image, exif))], size or form(image, exif).size)
    (folder / "Annotations/a.xml").write_text(labels)
    return folder


def write_coco(folder, image: bytes, exif: str):
    """The same in COCO's."""
    (folder / "images").mkdir(parents=True)
    (folder / "images/a.jpg").write_bytes(image)
    (left, top, right, bottom), (width, height) = corners(image, exif), form(image, exif).size
    facts = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": width, "height": height}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [left, top, right - left, bottom - top]}],
        "categories": [{"id": 1, "name": "box"}],
    }
    (folder / "labels.json").write_text(json.dumps(facts))
    return folder


def readers(data, exif: str | None = None):
    """What each reader of labelled photos gives: its boxes, or its error."""
    return (
        lambda: (
            make_shards(data, data.parent / "shards", exif=exif, force=True, progress=False)
            and Shards.open(data.parent / "shards").boxes(0)
        ),
        lambda: PhotoSet.open(data, exif=exif).boxes(0),
        lambda: PhotoSet.open(data, exif=exif).read(0).boxes,
    )


@pytest.mark.parametrize(
    ("orientation", "exif", "writer"), list(product((5, 6, 7, 8), ("shown", "stored"), (write_voc, write_coco)))
)
def test_the_size_in_labels_says_what_they_are_drawn_on(tmp_path, orientation, exif, writer):
    image = turned(orientation, kind="JPEG")
    data, other = writer(tmp_path / "data", image, exif), {"shown": "stored", "stored": "shown"}[exif]
    assert PhotoSet.open(data).check() == []
    for word in (None, exif):
        for boxes in readers(data, word):
            assert boxes().tolist() == [pytest.approx(white(image, "shown"), abs=1e-6)]
    what = (
        rf"pixels as it is {other}; EXIF \(orientation {orientation}\) turns it: as it is {exif}, it has .*: --exif {exif}; "
        "its labels are for"
    )
    for boxes in readers(data, other):
        with pytest.raises(FormatError, match=what):
            boxes()
    assert [each.file.rpartition("/")[2] for each in PhotoSet.open(data, exif=other).check()] == ["a.jpg"]


@pytest.mark.parametrize(("orientation", "stored", "size"), [
    *((orientation, STORED, None) for orientation in (2, 3, 4)),  # both forms have one size
    (6, (40, 40), None),
    (6, STORED, (0, 0)),  # some writers put 0
    (6, (401, 399), (4000, 4000)),  # proportions that fit both
])  # fmt: skip
def test_a_size_that_both_forms_have_says_nothing(tmp_path, orientation, stored, size):
    image = turned(orientation, stored, kind="JPEG")
    what = (
        rf"EXIF \(orientation {orientation}\) turns it, and its labels do not say.*give --exif shown or --exif stored"
    )
    for exif in ("shown", "stored"):
        data = write_voc(tmp_path / exif, image, exif, size)
        for boxes in readers(data):
            with pytest.raises(FormatError, match=what):
                boxes()
        if size is None:
            for boxes in readers(data, exif):
                assert boxes().tolist() == [pytest.approx(white(image, "shown"), abs=1e-6)]


def test_a_size_that_only_one_form_has_says_it_though_the_other_is_near(tmp_path):
    image = turned(6, (400, 398), kind="JPEG")
    for exif in ("shown", "stored"):
        for boxes in readers(write_voc(tmp_path / exif, image, exif)):
            assert boxes().tolist() == [pytest.approx(white(image, "shown"), abs=1e-6)]


def test_darknets_labels_do_not_say_it(tmp_path):
    data = write(tmp_path / "data", 6, "shown")
    what = r"images/a\.png: EXIF \(orientation 6\) turns it.*give --exif shown or --exif stored"
    labelled = YoloData(data)
    for boxes in (*readers(data), lambda: labelled.boxes(*labelled.images())):
        with pytest.raises(FormatError, match=what):
            boxes()
    (problem,) = PhotoSet.open(data).check()
    assert str(problem).startswith("images/a.png: EXIF (orientation 6)")
    (data / "labels/a.txt").write_text("")  # without a box nothing has to be known
    for boxes in (*readers(data), lambda: labelled.boxes(*labelled.images())):
        assert boxes().shape == (0, 5)
    assert PhotoSet.open(data).check() == []


def test_boxes_around_whole_photos_are_the_same_in_both_forms(tmp_path):
    (tmp_path / "data/cat").mkdir(parents=True)
    (tmp_path / "data/cat/a.png").write_bytes(turned(6))
    photos = PhotoSet.open(tmp_path / "data", labels="folders")
    assert (photos.check(), photos.boxes(0).tolist()) == ([], [[0, 0.5, 0.5, 1, 1]])
    make_shards(tmp_path / "data", tmp_path / "shards", labels="folders", progress=False)
    assert Shards.open(tmp_path / "shards").boxes(0).tolist() == [[0, 0.5, 0.5, 1, 1]]


def test_a_size_of_neither_form_is_refused(tmp_path):
    data = write_voc(tmp_path / "data", turned(6, kind="JPEG"), "shown", (100, 10))
    for exif in (None, "shown"):
        for boxes in readers(data, exif):
            with pytest.raises(FormatError, match=r"24 x 40 pixels as it is shown; EXIF.*its labels are for 100 x 10"):
                boxes()


def test_another_word_is_refused(tmp_path):
    data = write(tmp_path / "data", 1, "shown")
    for read in (
        lambda: make_shards(data, tmp_path / "shards", exif="turned"),
        lambda: PhotoSet.open(data, exif="turned"),
        lambda: YoloData(data, exif="turned"),
    ):
        with pytest.raises(UsageError, match="exif 'turned': expected one of shown, stored"):
            read()
