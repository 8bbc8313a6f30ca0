"""How the training sample reads photos and boxes: folders, tars and shards, what is held back, and what is damaged."""

# ruff: noqa: E402  (the samples are importable only after their folder is on the path)
from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')
sys.path.insert(0, str(Path(__file__).parents[2] / "samples"))

from pytrtplugins.errors import FormatError, ImageError, NoDataError, UsageError
from pytrtplugins.shards import make_shards
from tests.samples.rectangles import CLASSES, draw_set, load
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
    kept, held = hold_back(100, 0.12)
    assert len(held) == 12
    assert sorted(kept + held) == list(range(100))
    assert (kept, held) == hold_back(100, 0.12)


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


def test_photos_that_are_not_stored_upright_are_refused(tmp_path: Path) -> None:
    from PIL import Image

    folder, exif = draw_set(tmp_path / "set", 2), Image.Exif()
    exif[0x0112] = 6
    with Image.open(folder / "images/1.png") as image:
        image.save(folder / "images/1.png", exif=exif)
    photos = open_data([folder], "all")
    assert photos.read(0).key == "images/0.png"
    with pytest.raises(
        FormatError, match=r"photo images/1\.png: EXIF says that it is not upright.*\nDo: pytrt shards make"
    ):
        photos.read(1)
    for name, side in (("stored", None), ("upright", 256)):
        make_shards(folder, tmp_path / name, longest_side=side, progress=False)
    with pytest.raises(UsageError, match="stored: 1 photos: EXIF says that it is not upright"):
        open_data([tmp_path / "stored"], "train.txt")
    assert len(open_data([tmp_path / "upright"], "train.txt")) == 2


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
