"""How the training sample reads photos and boxes: folders, tars and shards, what is held back, and what is damaged."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from pytrtplugins.errors import FormatError, ImageError, NoDataError, UsageError
from pytrtplugins.mlops.shards import make_shards
from tests.samples.needs_torch import torch
from tests.samples.rectangles import CLASSES, draw_set, load
from tests.samples.training.loaders import KINDS, make
from tests.vision.labels.written import voc_xml
from training.data import changes, hold_back, load_photos, open_data, split
from yolov2_training import data

pytestmark = pytest.mark.usefixtures("one_thread")


def test_folder_tar_and_shards_give_the_same_images(rectangles: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        tar.add(rectangles, arcname=".")
    make_shards(rectangles, tmp_path / "shards", progress=False)
    found = []
    for place in (rectangles, tmp_path / "set.tar", tmp_path / "shards"):
        opened = open_data([place], "train.txt")
        found.append({Path(each.key).stem: each for each in map(opened.read, range(len(opened)))})
    for other in found[1:]:
        assert sorted(other) == sorted(found[0])
        for key, example in other.items():
            assert example.image == found[0][key].image
            np.testing.assert_allclose(example.boxes, found[0][key].boxes, rtol=0, atol=1e-6)
    sets = [open_data([path], "train.txt") for path in (rectangles, tmp_path / "shards")]
    assert [found.classes for found in sets] == [CLASSES, CLASSES]
    anchors = [data.kmeans_anchors(data.box_shapes(found), cells=13) for found in sets]
    torch.testing.assert_close(*anchors, rtol=0, atol=1e-4)


def test_missing_and_unreadable_data_are_named(rectangles: Path, tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match="nowhere"):
        open_data([tmp_path / "nowhere"], "train.txt")
    with pytest.raises(NoDataError, match=r"the list val\.txt is missing\.\nDo: write .* or give --evaluate all"):
        open_data([rectangles], "val.txt")
    broken = draw_set(tmp_path / "broken", 2)
    (broken / "images/1.png").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"images/1\.png"):
        load(broken)
    with pytest.raises(NoDataError, match="2 boxes, too few for 5 anchors"):
        data.kmeans_anchors(np.ones((2, 2), np.float32), cells=13)
    (broken / "labels/0.txt").write_text("7 0.5 0.5 0.1 0.1\n")
    with pytest.raises(FormatError, match=r"unknown class 7") as caught:
        open_data([broken], "all")
    assert "\nDo: repair" in str(caught.value)
    (broken / "train.txt").write_text("images/9.png\n")
    with pytest.raises(FormatError, match=r"images/9\.png: the list names it"):
        open_data([broken], "train.txt")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/shards.json").touch()
    with pytest.raises(UsageError, match=r"shards have no list 'val\.txt'"):
        open_data([tmp_path / "shards"], "val.txt")


def test_held_back_images_are_the_same_each_time_and_never_trained_on() -> None:
    """Other photos would be measured by a run that goes on with another version, among them some that it has learned."""
    assert hold_back(10, 0.3) == ([0, 1, 2, 3, 4, 5, 7], [6, 8, 9])
    kept, held = hold_back(100, 0.12)
    assert len(held) == 12
    assert sorted(kept + held) == list(range(100))


def test_some_of_the_photos_that_are_held_back_may_have_no_box() -> None:
    class Records:
        classes = ("red",)

        def __init__(self, *labelled: int) -> None:
            self.labelled = labelled

        def __len__(self) -> int:
            return 10

        def boxes(self, number: int) -> list[int]:
            return [0] * (number in self.labelled)

    kept, held = split(Records(8), 0.3)  # of 6, 8 and 9
    assert (len(kept), [len(held.boxes(number)) for number in range(len(held))]) == (7, [0, 1, 0])
    with pytest.raises(UsageError, match="none of the 3 photos that are held back has a box to measure"):
        split(Records(0, 1, 2, 3, 4, 5, 7), 0.3)


@pytest.mark.parametrize(
    ("count", "share", "message"),
    [
        (10, 0.01, "of 10 photos it holds back 0, and none would be measured.\nDo: give --hold-back 0.2"),
        (10, 0.97, "of 10 photos it holds back 10, and none is left to train on.\nDo: give --hold-back 0.2"),
        (1, 0.5, "of 1 photos it holds back 0"),
    ],
)
def test_a_share_that_leaves_one_of_the_two_sets_empty_is_refused(count: int, share: float, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        hold_back(count, share)
    assert message in str(caught.value)
    assert hold_back(count, 0.0) == (list(range(count)), [])


def test_held_back_photos_without_boxes_are_refused(tmp_path: Path) -> None:
    folder = draw_set(tmp_path / "set", 10)
    photos = open_data([folder], "train.txt")
    kept, held = split(photos, 0.1)
    assert (len(kept), len(held)) == (9, 1)
    (name,) = (Path(held.read(0).key).stem,)
    assert held.boxes(0).shape == (1, 5)
    (folder / f"labels/{name}.txt").write_text("")
    with pytest.raises(UsageError, match=r"none of the 1 photos that are held back has a box to measure.\nDo: give"):
        split(open_data([folder], "train.txt"), 0.1)


def test_boxes_are_cut_at_the_borders_of_their_photo(tmp_path: Path) -> None:
    folder = draw_set(tmp_path / "set", 2)
    (folder / "labels/0.txt").write_text("1 0.0 0.5 0.5 0.25\n")
    (example,) = (each for each in map(open_data([folder], "all").read, range(2)) if "0.png" in each.key)
    np.testing.assert_allclose(example.boxes, [[1, 0.125, 0.5, 0.25, 0.25]])


def test_a_data_yaml_names_photos_and_classes(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    folder = draw_set(tmp_path / "set", 3)
    (folder / "data.yaml").write_text(
        f"names: {list(CLASSES)}\ntrain: [images/0.png, images/2.png]\nval: images/1.png\n"
    )
    for source, listed, files in (("data.yaml", "train.txt", "02"), ("data.yaml", "all", "012"), ("", "val", "1")):
        found = open_data([folder / source], listed)
        assert found.classes == CLASSES
        assert [found.read(number).key for number in range(len(found))] == [f"images/{name}.png" for name in files]


RED = (20, 40, 100, 120)
"""Left, top, right and bottom of a rectangle on the upright photo."""


def phone_set(folder: Path, orientations: Sequence[int], labels: str, drawn: str) -> Path:
    """Upright all photos are alike: 200 x 320 pixels, with a red rectangle. EXIF turns those that are stored."""
    pixels = np.full((320, 200, 3), 30, np.uint8)
    pixels[RED[1] : RED[3], RED[0] : RED[2]] = (255, 0, 0)
    upright = Image.fromarray(pixels)
    folder.mkdir()
    (folder / "classes.txt").write_text("red\n")
    for orientation in orientations:
        exif, name = Image.Exif(), f"p{orientation}"
        exif[0x0112] = orientation
        stored = upright.transpose(_STORED[orientation]) if orientation > 1 else upright
        stored.save(folder / f"{name}.jpg", exif=exif, quality=95, subsampling=0)
        with Image.open(folder / f"{name}.jpg") as photo:  # the oracle: Pillow turns what we wrote
            assert ImageOps.exif_transpose(photo).size == upright.size
            labelled = ImageOps.exif_transpose(photo) if drawn == "shown" else photo.copy()
        left, top, right, bottom = labelled.getchannel(0).point(lambda value: 255 * (value > 150)).getbbox()
        width, height = labelled.size
        if labels == "voc":
            text = voc_xml(name, [("red", left, top, right, bottom)], labelled.size)
            (folder / f"{name}.xml").write_text(text)
        else:
            box = (
                (left + right) / 2 / width,
                (top + bottom) / 2 / height,
                (right - left) / width,
                (bottom - top) / height,
            )
            (folder / f"{name}.txt").write_text(f"0 {' '.join(map(str, box))}\n")
    (folder / "train.txt").write_text("".join(f"p{orientation}.jpg\n" for orientation in orientations))
    return folder


_STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drawn", ["shown", "stored"])
def test_photos_are_turned_upright_with_their_boxes_by_every_loader(tmp_path: Path, kind: str, drawn: str) -> None:
    """From folders and from shards whose photos are stored as EXIF has them turned."""
    sized = phone_set(tmp_path / "voc", (1, 5, 6, 7, 8), "voc", drawn)
    named = phone_set(tmp_path / "darknet", range(1, 9), "darknet", drawn)
    make_shards(sized, tmp_path / "shards", progress=False)
    make_shards(named, tmp_path / "more", exif=drawn, progress=False)
    for place, exif in (("voc", None), ("voc", drawn), ("darknet", drawn), ("shards", None), ("more", None)):
        photos = open_data([tmp_path / place], "train.txt", exif)
        with make(kind, photos, batch=len(photos), size=320, stop=1) as loader:
            (batch,) = loader
        assert sorted(key[-2:] for key in (Path(key).stem for key in batch.keys)) == sorted(
            f"p{number}" for number in ((1, 5, 6, 7, 8) if len(photos) == 5 else range(1, 9))
        )
        for row in range(len(photos)):
            assert batch.size[row].tolist() == [200, 320]
            red = (batch.pixels[row, 0] > 150) & (batch.pixels[row, 1] < 100)
            rows, columns = red.any(1).nonzero(), red.any(0).nonzero()
            assert (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1) == RED
            box = batch.boxes[row, 0, 1:] * torch.tensor([200, 320, 200, 320])
            np.testing.assert_allclose(box, [60, 80, 80, 80], atol=1e-3)
        np.testing.assert_allclose(data.box_shapes(photos), [[0.25, 0.25]] * len(photos), atol=1e-6)


def test_labels_that_do_not_say_what_they_are_drawn_on_end_a_run_at_its_start(tmp_path: Path) -> None:
    named = phone_set(tmp_path / "darknet", (1, 6), "darknet", "stored")
    what = (
        r"1 photos of all cannot be used:\np6\.jpg: EXIF \(orientation 6\) turns it.*give --exif shown or --exif stored\n"
        "Do: repair their labels, give --exif"
    )
    with pytest.raises(FormatError, match=what):
        open_data([named], "all")
    with pytest.raises(FormatError, match=r"p3\.jpg: EXIF \(orientation 3\)"):
        open_data([phone_set(tmp_path / "voc", (6, 3), "voc", "shown")], "train.txt")
    one, other = (open_data([named], "all", exif) for exif in ("shown", "stored"))
    assert one.digest != other.digest  # a run does not continue with the other
    make_shards(named, tmp_path / "shards", exif="stored", progress=False)
    with pytest.raises(UsageError, match=r"--exif shown: .*shards is a set of shards.*\nDo: leave --exif out"):
        open_data([tmp_path / "shards"], "train.txt", "shown")


@pytest.mark.parametrize("line", ["0 0.5 0.5 0 0", "0 0.5 0.5 0.2 0", "0 1.5 1.5 0.2 0.2", "0 -0.5 0.5 0.2 0.2"])
def test_boxes_without_an_area_in_their_photo_are_left_out_as_in_shards(tmp_path: Path, line: str) -> None:
    """They would become anchors of no size, and objects that nothing can find."""
    folder = draw_set(tmp_path / "set", 6)
    for path in (folder / "labels").iterdir():
        path.write_text(f"{path.read_text()}{line}\n1 0.1 0.5 0.4 0.5\n")  # the last one is cut
    make_shards(folder, tmp_path / "shards", progress=False)
    places = [open_data([place], "train.txt") for place in (folder, tmp_path / "shards")]
    for photos in places:
        assert [len(photos.boxes(number)) for number in range(6)] == 6 * [2]
        counts = changes(photos)
        assert counts["boxes without an area in the photo, left out"] == 6
        assert counts["boxes cut at the photo's edge"] == 6
        anchors = data.kmeans_anchors(data.box_shapes(photos), cells=2)
        assert anchors.min() > 0.3
        assert (load_photos(photos, torch.device("cpu"), side=64).boxes[..., 0] >= 0).sum() == 12


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_named_by_its_file(tmp_path: Path, content: bytes) -> None:
    folder = draw_set(tmp_path / "set", 6)
    (folder / "images/1.png").write_bytes(content)
    photos = open_data([folder], "train.txt")
    with pytest.raises(ImageError, match=r"images/1\.png does not decode: .*\nDo: .*--skip-bad") as caught:
        data.box_shapes(photos)
    assert "BytesIO" not in str(caught.value)
    assert len(data.box_shapes(photos, skip_bad=True)) == 5


def test_a_missing_list_of_photos_is_named_with_what_else_there_is(tmp_path: Path) -> None:
    folder = draw_set(tmp_path / "set", 2)
    (folder / "train.txt").unlink()
    with pytest.raises(NoDataError, match=r"the list train\.txt is missing\.\nDo: write .* \(pytrt shards make\)"):
        open_data([folder], "train.txt")


def test_shapes_of_boxes_are_told_by_heads_of_files_alone(rectangles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To decode a large set would take hours."""
    photos = open_data([rectangles], "train.txt")
    monkeypatch.setattr(data, "decode_image", lambda *_: pytest.fail("a photo was decoded"))
    assert len(data.box_shapes(photos)) == sum(len(photos.boxes(number)) for number in range(len(photos)))


def test_anchors_are_the_means_of_boxes_that_overlap_most() -> None:
    shapes = np.array([[8, 2], [2, 8], [1, 1], [10, 2], [2, 1], [2, 10]], np.float32) / 16
    anchors = data.kmeans_anchors(shapes, cells=16, count=3)
    torch.testing.assert_close(anchors, torch.tensor([[1.5, 1.0], [2.0, 9.0], [9.0, 2.0]]))
