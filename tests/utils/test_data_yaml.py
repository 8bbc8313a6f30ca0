"""What a data.yaml may say, and what is refused."""

import pytest

pytest.importorskip("yaml")

from pytrtplugins.errors import FormatError, NoDataError
from pytrtplugins.utils.data_yaml import DataYaml, _above_images


def parse(text, file="data.yaml"):
    return DataYaml.parse(text.encode(), file)


ULTRALYTICS = """# COCO8 dataset
path: ../datasets/coco8 # dataset root dir
train: images/train
val: [images/val, more/val.txt]
test: # test images (optional)

names:
  0: person
  1: traffic light
download: https://example.org/coco8.zip
"""
ROBOFLOW = """train: ../train/images
val: ../valid/images
test: ../test/images

nc: 2
names: ['0', 'helmet']

roboflow:
  workspace: w
  version: 3
"""


def test_the_form_of_ultralytics():
    description = parse(ULTRALYTICS, "x/coco8.yaml")
    assert (description.classes, description.root, description.folder) == (
        ("person", "traffic light"),
        "../datasets/coco8",
        "x",
    )
    assert description.parts == {"train": ("images/train",), "val": ("images/val", "more/val.txt")}


def test_the_form_of_roboflow():
    description = parse(ROBOFLOW)
    assert description.classes == ("0", "helmet")
    assert description.parts == {part: (f"../{folder}/images",) for part, folder in
                           (("train", "train"), ("val", "valid"), ("test", "test"))}  # fmt: skip


def test_names_keep_their_text():
    assert parse("names: [no, 010, on, 12:30:00, ~]").classes == ("no", "010", "on", "12:30:00", "~")


@pytest.mark.parametrize(
    ("name", "part"),
    [("val", "val"), ("val.txt", "val"), ("valid", "val"), ("validation.txt", "val"), ("train.txt", "train"),
     ("test", None), ("other", None), ("trains", None)],
)  # fmt: skip
def test_a_part_is_named_as_its_list_is(name, part):
    assert parse("{names: [a], train: x, validation: y}").part(name) == part


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        ("[cat, dog]", ("cat", "dog")),
        ("{1: dog, 0: cat}", ("cat", "dog")),
        ("{'0': cat, '1': dog}", ("cat", "dog")),
        ("[Cat, cat]", ("Cat", "cat")),
        ("['no', '1.10', '010']", ("no", "1.10", "010")),
        ("[ñandú, 人员]", ("ñandú", "人员")),
    ],
)
def test_names_are_a_list_or_numbers_with_names(names, classes):
    assert parse(f"names: {names}").classes == classes


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("names: [cat, true]", 1, "the name of class 1 is no text but True: write it in quotes"),
        ("names: [cat, 10]", 1, "the name of class 1 is no text but 10: write it in quotes"),
        ("names: [cat, 1.10]", 1, "the name of class 1 is no text but 1.1: write it in quotes"),
        ("names: [cat, '']", 1, "the name of class 1 is no text but '': write it in quotes"),
        ("names: [cat, , dog]", None, "not usable YAML"),
        ("names: {0: cat, 1: }", 1, "the name of class 1 is no text but None"),
        ("names: [cat, cat]", 1, "'cat' is the name of the classes 0 and 1"),
        ("names: {1: cat, 2: dog}", 1, "names: expected the numbers 0 to 1, each once, found [1, 2]"),
        ("names: {0: cat, true: dog}", 1, "names: expected the numbers 0 to 1, each once, found [0, True]"),
        ("names: {0: cat, '0': dog}", 1, "names: expected the numbers 0 to 1, each once, found [0, '0']"),
        ("names: {0: cat, 0: dog}", 1, "the key 0 appears twice"),
        ("names: {a: cat}", 1, "names: expected the numbers 0 to 0, each once, found ['a']"),
        ("names: []", 1, "names: expected 1 to 100,000 names, found []"),
        ("names: cat", 1, "names: expected 1 to 100,000 names, found 'cat'"),
        ("nc: 3\nnames: [cat, dog]", 1, "nc is 3, but there are 2 names"),
        ("names: [cat]\ntrain: {a: b}", 2, "train: expected a folder, a list of photos, or several, found {'a': 'b'}"),
        ("names: [cat]\ntrain: [a, 1]", 2, "train: expected a folder, a list of photos, or several, found ['a', 1]"),
        ("names: [cat]\npath: [a]", 2, "path: expected a folder, found ['a']"),
        ("nc: 2", None, "expected names, and the folders train, val or test"),
        ("- a", None, "expected names, and the folders train, val or test"),
        ("names: &a [cat]\ntrain: *a", 1, "aliases and anchors are not allowed"),
        ("names: [" + "[" * 99, 1, "nested more than 64 deep"),
    ],
)
def test_what_is_refused(text, line, what):
    with pytest.raises(FormatError) as raised:
        parse(text)
    assert what in str(raised.value)
    assert line is None or raised.value.line == line


def test_another_encoding_is_named():
    with pytest.raises(FormatError, match=r"data\.yaml: not UTF-8 in line 1; it seems to be GB2312"):
        DataYaml.parse("names: [人员]".encode("gb2312"), "data.yaml")


@pytest.mark.parametrize(
    ("text", "entry", "present", "place"),
    [
        ("{names: [a], path: ds}", "images/val", {"ds/images/val"}, "ds/images/val"),
        ("{names: [a], path: ds}", "images/val", {"images/val"}, "images/val"),  # the file lies in the folder
        ("{names: [a], path: ds}", "images/val", {"ds/images/val", "images/val"}, "ds/images/val"),
        ("{names: [a]}", "../valid/images", {"valid/images"}, "valid/images"),
        ("{names: [a], path: .}", "./images", {"images"}, "images"),
        ("{names: [a], path: 'c:\\\\ds'}", "images\\val", {"images/val"}, "images/val"),
    ],
)
def test_a_place_is_below_path_or_the_files_folder(text, entry, present, place):
    assert parse(text).place(entry, present.__contains__) == place


def test_a_place_that_is_missing_is_named_with_all_that_was_looked_for():
    with pytest.raises(NoDataError) as raised:
        parse("{names: [a], path: ds}").place("../x", set().__contains__)
    assert raised.value.places == ("x", "../x", "ds/x")
    assert "'../x' is missing, or holds no files. Looked for: x, ../x, ds/x" in str(raised.value)


def test_the_parts_must_have_a_folder_in_common(tmp_path):
    (tmp_path / "data.yaml").write_text("{names: [a], path: /, train: tmp, val: usr}")
    with pytest.raises(FormatError, match="the folders of its parts have only / in common"):
        DataYaml.read(tmp_path / "data.yaml")


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        ("/a/images/b", "/a"),
        ("/a/images/images/c", "/a/images"),
        ("/a/JPEGImages", "/a"),
        ("/images/b", "/"),
        ("/a/b", "/a"),
    ],
)
def test_labels_are_beside_the_last_folder_of_images(place, folder):
    assert _above_images(place) == folder
