"""data.yaml in every form that Ultralytics and Roboflow write, wherever a data set is asked for: the same photos and boxes."""

import os
import tarfile

import numpy as np
import pytest

pytest.importorskip("yaml")
pytest.importorskip("PIL")

from pytrtplugins.calibration import ImageBatches
from pytrtplugins.errors import FormatError, NoDataError, UsageError
from pytrtplugins.mlops.shards import PhotoSet, Shards, make_shards
from pytrtplugins.models import YoloData
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import read_labels
from tests.mlops.shards.photos import photo

NAMES = "names: [cat, dog]\n"
PARTS = {"train": ("a", "b"), "valid": ("c",)}
ROWS = {"a": [0, 0.5, 0.5, 0.25, 0.25], "b": [1, 0.25, 0.5, 0.25, 0.5], "c": [1, 0.5, 0.25, 0.5, 0.25]}


def write(folder, image="{part}/images/{name}.jpg", label="{part}/labels/{name}.txt"):
    """Photos and labels: Roboflow's folders, or others."""
    for part, names in PARTS.items():
        for number, name in enumerate(names):
            row = " ".join(map(str, ROWS[name]))
            for form, data in ((image, photo(number)), (label, row.encode())):
                path = folder / form.format(part=part, name=name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    return folder


ULTRALYTICS = {"image": "images/{part}/{name}.jpg", "label": "labels/{part}/{name}.txt"}


def lists(folder, form):
    for part, names in PARTS.items():
        (folder / f"{part}.list.txt").write_text("".join(f"{form.format(part=part, name=name)}\n" for name in names))


FORMS = {
    "roboflow": ({}, "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnc: 2\n" + NAMES),
    "roboflow, older": ({}, "train: train/images\nval: valid/images\n" + NAMES),
    "folders": (ULTRALYTICS, "path: .\ntrain: images/train\nval: images/valid\ntest:\nnames: {0: cat, 1: dog}\n"),
    "path elsewhere": (ULTRALYTICS, "path: /content/none\ntrain: images/train\nval: images/valid\n" + NAMES),
    "absolute": (ULTRALYTICS, "path: {folder}\ntrain: images/train\nval: images/valid\n" + NAMES),
    "absolute parts": (ULTRALYTICS, "train: {folder}/images/train\nval: {folder}/images/valid\n" + NAMES),
    "lists": (ULTRALYTICS, "train: train.list.txt\nval: valid.list.txt\n" + NAMES),
    "several": (ULTRALYTICS, "train: [images/train/a.jpg, train.list.txt]\nval: [images/valid]\n" + NAMES),
}


def check(source, kind="photos"):
    """Every reader gives the photos and boxes of the parts."""
    labelled = YoloData(source)
    assert labelled.classes == ("cat", "dog")
    for split, names in (("train", "ab"), ("train.txt", "ab"), ("val", "c"), ("val.txt", "c")):
        images = labelled.images(split)
        assert [os.path.splitext(os.path.basename(name))[0] for name in images] == list(names)
        assert [labelled.boxes(image)[0].tolist() for image in images] == [ROWS[name] for name in names]
        photos = PhotoSet.open(source, listed=split)
        assert [photos.key(number)[-1] for number in range(len(photos))] == list(names)
    photos = PhotoSet.open(source)
    assert (photos.labels, photos.classes, len(photos), photos.problems) == ("darknet", ("cat", "dog"), 3, ())
    assert [photos.boxes(number)[0].tolist() for number in range(3)] == list(ROWS.values())


@pytest.mark.parametrize("form", FORMS)
def test_a_file_gives_the_same_photos_and_boxes_to_all_readers(tmp_path, form):
    layout, text = FORMS[form]
    folder = write(tmp_path / "set", **layout)
    lists(folder, "./images/{part}/{name}.jpg")
    (folder / "data.yaml").write_text(text.replace("{folder}", str(folder)))
    check(folder / "data.yaml")
    if form != "absolute parts":
        check(folder)
    batches = ImageBatches(folder / "data.yaml", size=(8, 8))
    assert [path.name for path in batches.paths] == ["a.jpg", "b.jpg"]
    make_shards(folder / "data.yaml", tmp_path / "shards", listed="val", progress=False)
    shards = Shards.open(tmp_path / "shards")
    assert (len(shards), shards.classes, shards.boxes(0).tolist()) == (1, ("cat", "dog"), [ROWS["c"]])


def test_a_list_may_have_a_million_lines(tmp_path):
    folder = write(tmp_path / "set")
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / "some.txt").write_text("\n" * 1_000_000 + "train/images/b.jpg\n")
    assert YoloData(folder).images("some.txt") == ["train/images/b.jpg"]


def test_a_tar_may_hold_the_file(tmp_path):
    folder = write(tmp_path / "set")
    (folder / "data.yaml").write_text(FORMS["roboflow"][1])
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        tar.add(folder, arcname=".")
    check(tmp_path / "set.tar")


def test_a_file_may_lie_beside_its_folders(tmp_path):
    """As in Ultralytics' own folder of data sets."""
    write(tmp_path / "datasets/small", **ULTRALYTICS)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/small.yaml").write_text(
        "path: ../datasets/small\ntrain: images/train\nval: images/valid\n" + NAMES
    )
    check(tmp_path / "configs/small.yaml")
    (tmp_path / "configs/small.yaml").write_text(
        "train: ../datasets/small/images/train\nval: ../datasets/small/images/valid\n" + NAMES
    )
    check(tmp_path / "configs/small.yaml")


def test_only_the_parts_of_a_file_are_taken_where_it_is_the_source(tmp_path):
    folder = write(tmp_path / "set")
    (folder / "more/images").mkdir(parents=True)
    (folder / "more/images/d.jpg").write_bytes(photo(3))
    (folder / "data.yaml").write_text(FORMS["roboflow"][1])
    assert len(PhotoSet.open(folder / "data.yaml")) == 3
    assert len(PhotoSet.open(folder)) == 4


def test_a_list_of_the_set_comes_before_a_file_in_it_and_after_one_that_is_the_source(tmp_path):
    folder = write(tmp_path / "set")
    (folder / "data.yaml").write_text(FORMS["roboflow"][1])
    (folder / "val.txt").write_text("train/images/a.jpg\n")
    assert YoloData(folder).images("val.txt") == ["train/images/a.jpg"]
    assert YoloData(folder).images("val") == ["valid/images/c.jpg"]
    assert YoloData(folder / "data.yaml").images("val.txt") == ["valid/images/c.jpg"]


def test_parts_that_are_missing_are_named(tmp_path):
    folder = write(tmp_path / "set")
    (folder / "data.yaml").write_text("train: train/pictures\nval: valid/images\n" + NAMES)
    for source in (folder, folder / "data.yaml"):
        with pytest.raises(
            NoDataError, match=r"'train/pictures' is missing, or holds no files\. Looked for: .*train/pictures"
        ):
            YoloData(source).images("train")
        with pytest.raises(NoDataError, match=r"test is missing; .* data\.yaml has train, val"):
            YoloData(source).images("test")
    with pytest.raises(NoDataError, match="'train/pictures' is missing"):
        read_labels(FileSet(folder / "data.yaml"))


def test_names_that_differ_from_those_of_a_list_are_refused(tmp_path):
    folder = write(tmp_path / "set")
    (folder / "data.yaml").write_text(FORMS["roboflow"][1])
    (folder / "classes.txt").write_text("dog\ncat\n")
    with pytest.raises(FormatError, match=r"classes\.txt and data\.yaml name other classes"):
        YoloData(folder)


def test_a_file_in_a_set_does_not_lead_out_of_it(tmp_path):
    write(tmp_path)
    folder = write(tmp_path / "set", image="images/{name}.jpg", label="labels/{name}.txt")
    (folder / "data.yaml").write_text("path: ..\ntrain: train/images\nval: ../../valid/images\n" + NAMES)
    for part in ("train", "val"):
        with pytest.raises(NoDataError, match="is missing, or holds no files"):
            YoloData(folder).images(part)


def test_two_files_are_refused(tmp_path):
    folder = write(tmp_path / "set")
    (folder / "data.yaml").write_text(FORMS["roboflow"][1])
    with pytest.raises(UsageError, match=r"several files data\.yaml"):
        FileSet([folder / "data.yaml", folder / "data.yaml"])


def test_calibration_without_train_takes_val(tmp_path):
    folder = write(tmp_path / "set")
    (folder / "data.yaml").write_text("val: valid/images\n" + NAMES)
    (batch,) = ImageBatches(folder / "data.yaml", size=(8, 8))
    assert batch["data"].shape == (1, 3, 8, 8)
    assert np.isfinite(batch["data"]).all()
