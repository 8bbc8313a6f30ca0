"""Which labels belong to which photo: layouts of folders in every format, with exact boxes, and darknet itself as the oracle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest

from pytrtplugins.errors import NoDataError
from pytrtplugins.models import YoloData
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import read_labels
from pytrtplugins.vision.labels.darknet import LabelFiles
from pytrtplugins.vision.labels.pairing import Pairs, PathIndex, is_kind, splits
from pytrtplugins.vision.labels.photo_files import PhotoFiles
from tests.mlops.shards.photos import photo
from tests.oracles.libdarknet import DEFAULT_LIBRARY
from tests.vision.labels.written import cvat_xml, voc_xml

pytest.importorskip("PIL")
SIZE = (40, 20)
BOXES = {"train": ("dog", 0, 0, 10, 10), "val": ("cat", 4, 5, 40, 20)}
SHARES = {"train": [1, 0, 0, 0.25, 0.5], "val": [0, 0.1, 0.25, 1, 1]}
TEXTS = {"train": "1 .125 .25 .25 .5\n", "val": "0 .55 .625 .9 .75\n"}
LAYOUTS = {
    "images/PART": (
        "images/{}/0001.jpg", "labels/{}/0001.txt", "Annotations/{}/0001.xml", "annotations/instances_{}.json", "annotations/{}.xml",
    ),
    "JPEGImages/PART": (
        "JPEGImages/{}/0001.jpg", "labels/{}/0001.txt", "Annotations/{}/0001.xml", "annotations/{}.json", "annotations/{}.xml",
    ),
    "PART/images": (
        "{}/images/0001.jpg", "{}/labels/0001.txt", "{}/Annotations/0001.xml", "{}/annotations/instances.json", "{}/annotations.xml",
    ),
    "PART": ("{}/0001.jpg", "{}/0001.txt", "{}/0001.xml", "{}/_annotations.coco.json", "{}/annotations.xml"),
    "PART, labels apart": (
        "{}/0001.jpg", "labels/{}/0001.txt", "Annotations/{}/0001.xml", "annotations/instances_{}.json", "cvat_{}.xml",
    ),
    "PART2017": (
        "{}2017/0001.jpg", "labels/{}2017/0001.txt", "xml/{}2017/0001.xml", "annotations/instances_{}2017.json", "{}2017.xml",
    ),
}  # fmt: skip
"""A photo, and its labels in each format; both parts have a photo of the same name."""
FORMATS = ("darknet", "voc", "coco", "cvat")


def coco_json(part: str, file: str = "0001.jpg") -> str:
    label, left, top, right, bottom = BOXES[part]
    kinds = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    kind = next(each["id"] for each in kinds if each["name"] == label)
    box = {"id": 1, "image_id": 7, "category_id": kind, "bbox": [left, top, right - left, bottom - top]}
    image = {"id": 7, "file_name": file, "width": 40, "height": 20}
    return json.dumps({"images": [image], "annotations": [box], "categories": kinds})


def labels_text(kind: str, part: str) -> str:
    if kind == "darknet":
        return TEXTS[part]
    if kind == "voc":
        return voc_xml("0001", [BOXES[part]], SIZE)
    return coco_json(part) if kind == "coco" else cvat_xml({"0001": [BOXES[part]]})


def write(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def boxes(annotations):
    """Boxes of the photos that have some."""
    return {each.file: each.boxes.round(9).tolist() for each in annotations.photos if len(each.boxes)}


@pytest.mark.parametrize(("layout", "kind"), list(product(LAYOUTS, FORMATS)), ids=" ".join)
@pytest.mark.parametrize("parts", [("train", "val"), ("val",), ("train",)], ids="+".join)
def test_photos_of_one_name_get_the_boxes_of_their_own_folder(tmp_path, layout, kind, parts):
    image, *labels = LAYOUTS[layout]
    files: dict[str, bytes | str] = {image.format(part): photo(1, SIZE) for part in BOXES}
    files |= {labels[FORMATS.index(kind)].format(part): labels_text(kind, part) for part in parts}
    annotations = read_labels(
        FileSet(write(tmp_path, {**files, "classes.txt": "cat\ndog\n"})), labels=kind, classes=["cat", "dog"]
    )
    assert annotations.problems == []
    assert boxes(annotations) == {image.format(part): [SHARES[part]] for part in parts}


@pytest.mark.parametrize(("layout", "kind"), list(product(LAYOUTS, FORMATS)), ids=" ".join)
def test_labels_of_one_part_are_never_given_to_the_other(tmp_path, layout, kind):
    """Photos of train, labels of val."""
    image, *labels = LAYOUTS[layout]
    files: dict[str, bytes | str] = {image.format("train"): photo(1, SIZE)}
    files |= {labels[FORMATS.index(kind)].format("val"): labels_text(kind, "val")}
    data = FileSet(write(tmp_path, {**files, "classes.txt": "cat\ndog\n"}))
    if kind == "darknet":
        with pytest.raises(NoDataError, match="none of 1 photos has labels"):
            read_labels(data, labels=kind)
        return
    annotations = read_labels(data, labels=kind)
    assert annotations.photos == []
    assert "missing" in str(annotations.problems[0])


@pytest.mark.parametrize(("layout", "part"), list(product(LAYOUTS, BOXES)))
def test_evaluation_pairs_as_shards_do(tmp_path, layout, part):
    image, text, *_ = LAYOUTS[layout]
    files: dict[str, bytes | str] = {image.format(each): photo(1, SIZE) for each in BOXES}
    files |= {text.format(each): TEXTS[each] for each in BOXES}
    data = YoloData(write(tmp_path, {**files, "classes.txt": "cat\ndog\n", "val.txt": image.format(part)}))
    (name,) = data.images()
    assert name == image.format(part)
    assert data.boxes(name).tolist() == [[float(word) for word in TEXTS[part].split()]]


FLAT: dict[str, bytes | str] = {
    "train/0001.jpg": photo(1, SIZE),
    "val/0001.jpg": photo(1, SIZE),
    "classes.txt": "cat\ndog\n",
}


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("labels/0001.txt", TEXTS["val"], "labels/0001.txt may be the labels of train/0001.jpg or val/0001.jpg"),
        ("xml/0001.xml", labels_text("voc", "val"), "xml/0001.xml may be the labels of train/0001.jpg or val/0001.jpg"),
        ("labels.json", coco_json("val"), "'0001.jpg' in labels.json may be train/0001.jpg or val/0001.jpg"),
        ("all.xml", labels_text("cvat", "val"), "'0001.jpg' in all.xml may be train/0001.jpg or val/0001.jpg"),
    ],
)
def test_labels_that_may_be_of_two_photos_are_a_problem_and_of_none(tmp_path, name, text, what):
    annotations = read_labels(FileSet(write(tmp_path, {**FLAT, name: text})))
    assert what in " ".join(map(str, annotations.problems))
    assert boxes(annotations) == {}


def test_two_files_that_may_be_the_labels_of_a_photo_are_a_problem(tmp_path):
    files: dict[str, bytes | str] = {
        "images/a.jpg": photo(1, SIZE),
        "images/a.txt": TEXTS["val"],
        "labels/a.txt": TEXTS["train"],
    }
    annotations = read_labels(FileSet(write(tmp_path, {**files, "classes.txt": "cat\ndog\n"})))
    assert [str(each) for each in annotations.problems] == [
        "images/a.jpg: its labels may be images/a.txt or labels/a.txt"
    ]


def test_reports_of_a_detector_are_not_taken_for_labels_of_photos_without_any(tmp_path):
    files: dict[str, bytes | str] = {f"images/{name}.jpg": photo(1, SIZE) for name in "ab"}
    files |= {"labels/a.txt": TEXTS["val"], "runs/a.txt": TEXTS["train"], "runs/b.txt": TEXTS["train"]}
    annotations = read_labels(FileSet(write(tmp_path, {**files, "classes.txt": "cat\ndog\n"})))
    assert (annotations.problems, boxes(annotations)) == ([], {"images/a.jpg": [SHARES["val"]]})


@pytest.mark.parametrize(
    ("photo_file", "labels"),
    [("pics/a.jpg", "labels/a.txt"), ("images/a.jpg", "marks/a.txt"), ("a.jpg", "x/y/a.txt"), ("x/y/a.jpg", "y/a.txt")],
)
def test_a_photo_without_labels_by_path_has_those_of_its_name(photo_file, labels):
    assert Pairs([photo_file], [labels]).labels_of(photo_file) == labels
    assert Pairs([photo_file], [labels]).photo_of(labels) == photo_file


@pytest.mark.parametrize(
    ("photo_file", "labels"), [("x/a.jpg", "y/a.txt"), ("x/a.jpg", "x/y/a.txt"), ("a.jpg", "b.txt")]
)
def test_folders_that_contradict_each_other_are_of_other_photos(photo_file, labels):
    assert Pairs([photo_file], [labels]).labels_of(photo_file) is None
    assert Pairs([photo_file], [labels]).photo_of(labels) is None


@pytest.mark.parametrize(
    "file", ["JPEGImages/a.jpg", "VOC/JPEGImages/a.jpg", "images/a.jpg", "images/train/a.jpg", "train/images/a.jpg", "a.png", "obj/a.b.jpg"]
)  # fmt: skip
@pytest.mark.skipif(not Path(DEFAULT_LIBRARY).exists(), reason="darknet is missing")
def test_darknet_itself_reads_the_same_labels(tmp_path, file):
    """``fill_truth_detection`` of darknet's data.c opens the file; it ends the process where there is none."""
    label = "/".join("labels" if part in ("images", "JPEGImages") else part for part in file.split("/")[:-1])
    label = f"{label}/{file.rpartition('/')[2].rpartition('.')[0]}.txt".lstrip("/")
    files = FileSet(write(tmp_path, {file: photo(1, SIZE), label: TEXTS["val"], "classes.txt": "cat\ndog\n"}))
    program = f"""
import ctypes
library = ctypes.CDLL({DEFAULT_LIBRARY!r})
truth, one, none = (ctypes.c_float * 10)(), ctypes.c_float(1), ctypes.c_float(0)
library.fill_truth_detection({file.encode()!r}, 2, truth, 2, 0, none, none, one, one)
print(list(truth))
"""
    read = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert read.returncode == 0, read.stderr
    x, y, width, height, kind, *rest = json.loads(read.stdout.splitlines()[-1])
    assert not any(rest)
    assert LabelFiles(files, PhotoFiles(files)).of(file) == label
    (row,) = boxes(read_labels(files))[file]
    assert row == pytest.approx([kind, x - width / 2, y - height / 2, x + width / 2, y + height / 2], abs=1e-6)


def test_a_set_without_a_single_label_is_refused_with_the_folders(tmp_path):
    files = {f"{folder}/images/{name}.jpg": photo(1, SIZE) for folder in ("x", "y") for name in "ab"}
    names = "\n".join(files)
    write(tmp_path, {**files, "classes.txt": "cat\n", "val.txt": names, "labels/other.txt": ""})
    what = r"none of 4 photos has labels: looked for NAME\.txt in x/labels/, x/images/, y/labels/, y/images/"
    with pytest.raises(NoDataError, match=what) as raised:
        YoloData(tmp_path).check_labels(YoloData(tmp_path).images())
    assert raised.value.folders == ("x/labels", "x/images", "y/labels", "y/images")
    with pytest.raises(NoDataError, match=what):
        read_labels(FileSet(tmp_path), labels="darknet")


def test_many_photos_of_one_name_are_paired_in_a_moment():
    """A thousand folders with a frame of the same name, of which half have no labels."""
    photos = [f"cam{number}/images/0001.jpg" for number in range(1000)]
    labels = [f"cam{number}/labels/0001.txt" for number in range(0, 1000, 2)]
    pairs = Pairs(photos, labels)
    assert [pairs.labels_of(each) for each in photos[:3]] == ["cam0/labels/0001.txt", None, "cam2/labels/0001.txt"]


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("annotations/instances_val2017.json", {"val"}), ("Train/x.json", {"train"}), ("valid/a", {"val"}), ("training/", {"train"}),
        ("a/validation.xml", {"val"}), ("trains/valley.json", set()), ("", set()), ("train-test.json", {"train", "test"}),
    ],
)  # fmt: skip
def test_parts_that_a_path_tells(path, parts):
    assert splits(path) == parts


def test_an_index_tells_paths_of_one_identity():
    index = PathIndex(["images/x/a.jpg", "x/JPEGImages/a.png", "y/a.jpg", "a.jpg"], stems=True)
    assert index.equal("labels/x/a.txt") == ["images/x/a.jpg", "x/JPEGImages/a.png"]
    assert index.longer("labels/a.txt") == ["images/x/a.jpg", "x/JPEGImages/a.png", "y/a.jpg"]
    assert index.shorter("z/y/a.txt") == ["y/a.jpg"]
    assert index.shorter("z/a.txt") == ["a.jpg"]
    assert index.equal("") == []


@pytest.mark.parametrize(
    "folder",
    [
        "images",
        "JPEGImages",
        "image",
        "img",
        "imgs",
        "photos",
        "labels",
        "label",
        "Annotations",
        "annotation",
        "xml",
        "xmls",
        "txt",
    ],
)
def test_folders_that_say_what_a_file_is_are_no_part_of_its_name(folder):
    assert is_kind(folder)
    assert not is_kind(f"{folder}2")
