"""Labels may be drawn on photos as they are shown or as they are stored; boxes in shards are those of the photo as it is shown."""

from __future__ import annotations

import io
from itertools import product

import numpy as np
import pytest

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.models import YoloData
from pytrtplugins.shards import PhotoSet, Shards, make_shards
from pytrtplugins.vision import decode_image
from tests.shards.labels.written import voc_xml

Image = pytest.importorskip("PIL.Image")
STORED = (40, 24)  # width and height of the pixels in the file
BOX = (4, 6, 14, 18)  # of a white rectangle on them


def turned(orientation: int) -> bytes:
    """A photo with a white rectangle on black, which EXIF turns."""
    pixels = np.zeros((*STORED[::-1], 3), np.uint8)
    pixels[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG", exif=exif)
    return file.getvalue()


def white(image: bytes, exif: bool):
    """Where the rectangle is: class 0, centre and size in shares."""
    pixels = decode_image(image, exif=exif)[:, :, 0] > 127
    rows, columns = (np.flatnonzero(pixels.any(axis)) for axis in (1, 0))
    height, width = pixels.shape
    left, right, top, bottom = columns[0] / width, (columns[-1] + 1) / width, rows[0] / height, (rows[-1] + 1) / height
    return [0, (left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def write(folder, orientation, exif):
    """A set in darknet's format; labels are drawn on what ``exif`` says."""
    data = turned(orientation)
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    (folder / "images/a.png").write_bytes(data)
    (folder / "labels/a.txt").write_text(" ".join(map(str, white(data, exif == "shown"))))
    (folder / "classes.txt").write_text("box\n")
    (folder / "val.txt").write_text("images/a.png\n")
    return folder


@pytest.mark.parametrize(("orientation", "exif"), list(product(range(1, 9), ("shown", "stored"))))
def test_boxes_are_on_the_photo_as_it_is_shown_in_all_commands(tmp_path, orientation, exif):
    data = write(tmp_path / "data", orientation, exif)
    expected = pytest.approx(white(turned(orientation), True), abs=1e-6)
    manifest = make_shards(data, tmp_path / "shards", exif=exif, progress=False)
    assert manifest.changed.get("photos that EXIF says are not upright", 0) == (orientation > 1)
    assert Shards.open(tmp_path / "shards").boxes(0)[0].tolist() == expected
    make_shards(data, tmp_path / "upright", exif=exif, longest_side=64, progress=False)
    example = Shards.open(tmp_path / "upright").read(0)
    assert example.boxes[0].tolist() == expected
    if orientation > 1:
        assert white(example.image, False) == pytest.approx(example.boxes[0].tolist(), abs=0.03)  # JPEG
    photos = PhotoSet.open(data, exif=exif)
    assert photos.read(0).boxes[0].tolist() == expected
    assert photos.boxes(0)[0].tolist() == expected
    labelled = YoloData(data, exif=exif)
    (name,) = labelled.images()
    assert labelled.boxes(name)[0].tolist() == expected
    assert labelled.image(name).shape == decode_image(turned(orientation)).shape


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_a_size_of_the_other_form_is_refused_and_the_option_is_named(tmp_path, orientation):
    for name in ("Annotations", "JPEGImages"):
        (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "data/JPEGImages/a.png").write_bytes(turned(orientation))
    labels = tmp_path / "data/Annotations/a.xml"
    labels.write_text(voc_xml("a", [("box", *BOX)], STORED))
    what = (
        rf"24 x 40 pixels as it is shown; EXIF \(orientation {orientation}\) turns it: as it is stored, it has 40 x 24: "
        "--exif stored; its labels are for 40 x 24"
    )
    for read in (
        lambda: make_shards(tmp_path / "data", tmp_path / "shards", progress=False),
        lambda: PhotoSet.open(tmp_path / "data").read(0),
    ):
        with pytest.raises(FormatError, match=what):
            read()
    make_shards(tmp_path / "data", tmp_path / "shards", exif="stored", progress=False)
    expected = pytest.approx(white(turned(orientation), True), abs=1e-6)
    assert Shards.open(tmp_path / "shards").boxes(0)[0].tolist() == expected
    labels.write_text(voc_xml("a", [("box", *BOX)], (0, 0)))  # the size is then the photo's own
    assert PhotoSet.open(tmp_path / "data", exif="stored").read(0).boxes[0].tolist() == expected
    labels.write_text(voc_xml("a", [("box", *BOX)], STORED[::-1]))
    with pytest.raises(FormatError, match=r"40 x 24 pixels as it is stored;.*it has 24 x 40: --exif shown"):
        PhotoSet.open(tmp_path / "data", exif="stored").read(0)


def test_another_word_is_refused(tmp_path):
    data = write(tmp_path / "data", 1, "shown")
    for read in (
        lambda: make_shards(data, tmp_path / "shards", exif="turned"),
        lambda: PhotoSet.open(data, exif="turned"),
        lambda: YoloData(data, exif="turned"),
    ):
        with pytest.raises(UsageError, match="exif 'turned': expected one of shown, stored"):
            read()
