"""COCO's ids, sizes and crowds as writers have them: a box is on the photo that its annotation names, or the problem is named."""

import contextlib
import io
import json
from itertools import product

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.file_set import FileSet
from pytrtplugins.vision.labels import read_labels
from tests.mlops.shards.photos import photo

pytest.importorskip("PIL")
SIZE = (40, 20)
FORMS = {"number": int, "float": float, "text": str}
BOXES = {1: [(1, [0, 0, 10, 10])], 2: [(2, [4, 5, 36, 15]), (1, [8, 2, 8, 10])]}
"""Category and bbox of each image's annotations."""
EXPECTED = {"a.jpg": [[0, 0, 0, 0.25, 0.5]], "b.jpg": [[1, 0.1, 0.25, 1, 1], [0, 0.2, 0.1, 0.4, 0.6]]}


def facts(image=int, image_id=int, category=int, category_id=int):
    """Two photos and their boxes; each kind of id in a form of its own."""
    rows = [(number, *row) for number, rows in BOXES.items() for row in rows]
    return {
        "images": [{"id": image(i), "file_name": f"{'ab'[i - 1]}.jpg", "width": 40, "height": 20} for i in BOXES],
        "annotations": [
            {"id": number, "image_id": image_id(i), "category_id": category_id(kind), "bbox": box, "iscrowd": 0, "area": 1}
            for number, (i, kind, box) in enumerate(rows, 1)
        ],
        "categories": [{"id": category(1), "name": "cat"}, {"id": category(2), "name": "dog"}],
    }  # fmt: skip


@pytest.fixture
def read(tmp_path):
    for number, name in enumerate(EXPECTED):
        (tmp_path / name).write_bytes(photo(number, SIZE))

    def read(changed):
        (tmp_path / "labels.json").write_text(json.dumps(changed))
        return read_labels(FileSet(tmp_path))

    return read


def boxes(annotations):
    return {each.file: each.boxes.tolist() for each in annotations.photos}


@pytest.mark.parametrize("forms", list(product(FORMS, repeat=4)), ids="-".join)
def test_ids_of_all_forms_give_the_same_boxes(read, forms):
    annotations = read(facts(*(FORMS[form] for form in forms)))
    assert (annotations.problems, annotations.classes, boxes(annotations)) == ([], ("cat", "dog"), EXPECTED)


@pytest.mark.parametrize("forms", list(product(("number", "float"), repeat=2)), ids="-".join)
def test_pycocotools_gives_the_same_photos_their_boxes(read, tmp_path, forms):
    coco = pytest.importorskip("pycocotools.coco").COCO
    image, image_id = (FORMS[form] for form in forms)
    annotations = boxes(read(facts(image, image_id)))
    with contextlib.redirect_stdout(io.StringIO()):
        known = coco(str(tmp_path / "labels.json"))
    for entry in known.loadImgs(known.getImgIds()):
        rows = [(row["category_id"] - 1, *row["bbox"]) for row in known.loadAnns(known.getAnnIds(imgIds=entry["id"]))]
        shares = [[k, x / 40, y / 20, (x + w) / 40, (y + h) / 20] for k, x, y, w, h in rows]
        assert annotations[entry["file_name"]] == shares


def change_images(**values):
    return lambda facts: facts["images"][0].update(values)


def change_annotations(**values):
    return lambda facts: facts["annotations"][0].update(values)


def test_a_side_may_have_1048576_pixels(read):
    changed = facts()
    change_images(width=1 << 20, height=1 << 20)(changed)
    assert not read(changed).problems


def remove(part, key):
    return lambda facts: facts[part][0].pop(key)


@pytest.mark.parametrize(
    ("change", "what", "left"),
    [
        (change_images(id=2), "labels.json: 2 images have the id 2: 'a.jpg' and 'b.jpg'", []),
        (change_images(id="2"), "labels.json: 2 images have the id 2: 'a.jpg' and 'b.jpg'", []),
        (remove("images", "id"), "the image 'a.jpg': expected a number or a text as its id, found nothing", ["b.jpg"]),
        (change_images(id=None), "the image 'a.jpg': expected a number or a text as its id, found None", ["b.jpg"]),
        (change_images(id=[1]), "the image 'a.jpg': expected a number or a text as its id, found [1]", ["b.jpg"]),
        (change_images(id=1.5), "the image 'a.jpg': expected a number or a text as its id, found 1.5", ["b.jpg"]),
        (change_images(id=True), "the image 'a.jpg': expected a number or a text as its id, found True", ["b.jpg"]),
        (remove("annotations", "image_id"), "annotation 1: expected a number or a text as its image_id, found nothing", None),
        (change_annotations(image_id={}), "annotation 1: expected a number or a text as its image_id, found {}", None),
        (change_annotations(image_id="a"), "1 annotations are of images that it does not list: ['a']", None),
        (change_annotations(category_id=[1]), "a.jpg: annotation 1: unknown category [1]", ["b.jpg"]),
        (change_annotations(category_id=None), "a.jpg: annotation 1: unknown category None", ["b.jpg"]),
        (change_annotations(iscrowd=2), "a.jpg: annotation 1: expected iscrowd 0 or 1, found 2", ["b.jpg"]),
        (change_annotations(iscrowd=[1]), "a.jpg: annotation 1: expected iscrowd 0 or 1, found [1]", ["b.jpg"]),
        (
            lambda facts: facts["annotations"][0].update(bbox=None, segmentation={"counts": "04", "size": [20, 40]}),
            "annotation 1: expected a bbox of 4 numbers, found None; its mask is not read: pycocotools.mask.toBbox", ["b.jpg"],
        ),
        (change_images(width="wide"), "a.jpg: expected its width and height, found ['wide', 20]", ["b.jpg"]),
        (change_images(width=-40), "a.jpg: expected its width and height, found [-40, 20]", ["b.jpg"]),
        (change_images(height=[20]), "a.jpg: expected its width and height, found [40, [20]]", ["b.jpg"]),
        (change_images(width=0x100001, height=0x100001), "a.jpg: expected a width and height of at most 1,048,576", ["b.jpg"]),
        (change_images(width=1 << 40), "a.jpg: expected a width and height of at most 1,048,576", ["b.jpg"]),
        (change_images(file_name=""), "labels.json: the image 1: expected a file_name, found ''", ["b.jpg"]),
    ],
)  # fmt: skip
def test_what_names_no_photo_is_a_problem_and_its_boxes_are_nowhere_else(read, change, what, left):
    changed = facts()
    change(changed)
    annotations = read(changed)
    assert any(what in str(problem) for problem in annotations.problems), annotations.problems
    if left is None:  # an annotation is lost, of a photo that has no other
        assert boxes(annotations) == {"a.jpg": [], "b.jpg": EXPECTED["b.jpg"]}
    else:
        assert boxes(annotations) == {name: EXPECTED[name] for name in left}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda facts: facts["categories"][0].update(id=[1]), "the category 'cat' lacks its id or its name"),
        (lambda facts: facts["categories"][0].update(id={}), "the category 'cat' lacks its id or its name"),
        (lambda facts: facts["categories"][0].update(id=None), "the category 'cat' lacks its id or its name"),
        (lambda facts: facts["categories"][0].update(id=2), "the categories 'cat' and 'dog' have the id 2"),
        (lambda facts: facts["categories"][0].update(id="2"), "the categories 'cat' and 'dog' have the id 2"),
        (lambda facts: facts["categories"][0].update(name=" "), "the category ' ' lacks its id or its name"),
    ],
)
def test_categories_that_cannot_be_told_apart_are_refused(read, change, what):
    changed = facts()
    change(changed)
    with pytest.raises(FormatError) as raised:
        read(changed)
    assert what in str(raised.value)
    assert "Do: correct it" in str(raised.value)


@pytest.mark.parametrize("key", ["width", "height"])
@pytest.mark.parametrize("value", [None, 0, "", "absent"])
def test_a_size_that_is_missing_is_the_photos_own(read, key, value):
    changed = facts()
    changed["images"][0][key] = value
    if value == "absent":
        del changed["images"][0][key]
    assert boxes(read(changed)) == EXPECTED


@pytest.mark.parametrize("form", [str, float])
def test_a_size_may_be_a_text_or_a_float(read, form):
    changed = facts()
    for image in changed["images"]:
        image.update(width=form(40) if form is float else "40", height="20")
    annotations = read(changed)
    assert (annotations.problems, boxes(annotations)) == ([], EXPECTED)
    assert {each.size for each in annotations.photos} == {SIZE}


@pytest.mark.parametrize(("value", "crowd"), [(1, True), (1.0, True), ("1", True), (True, True), (0, False), (0.0, False),
                                              ("0", False), (False, False), (None, False)])  # fmt: skip
def test_crowds_are_left_out_however_they_are_written(read, value, crowd):
    changed = facts()
    changed["annotations"][0].update(iscrowd=value, segmentation={"counts": [0, 4], "size": [2, 2]})
    annotations = read(changed)
    assert boxes(annotations) == {**EXPECTED, **({"a.jpg": []} if crowd else {})}
    assert annotations.left_out["boxes of crowds, left out"] == crowd


def test_the_box_of_an_annotation_with_a_mask_is_that_of_pycocotools(read):
    mask = pytest.importorskip("pycocotools.mask")
    numpy = pytest.importorskip("numpy")
    pixels = numpy.zeros((20, 40), numpy.uint8, order="F")
    pixels[5:20, 4:40] = 1
    encoded = mask.encode(pixels)
    changed = facts()
    changed["annotations"][1].update(
        bbox=mask.toBbox(encoded).tolist(), segmentation={"size": [20, 40], "counts": encoded["counts"].decode()}
    )
    assert boxes(read(changed)) == EXPECTED


def test_annotations_with_one_id_stay_on_their_own_photos(read):
    changed = facts()
    for annotation in changed["annotations"]:
        annotation["id"] = 1
    assert boxes(read(changed)) == EXPECTED


def test_categories_with_one_name_are_one_class_which_is_said(read):
    changed = facts()
    changed["categories"][1]["name"] = "cat"
    annotations = read(changed)
    assert annotations.classes == ("cat",)
    assert annotations.left_out["categories with the name of another, joined"] == 1
    assert [row[0] for rows in boxes(annotations).values() for row in rows] == [0, 0, 0]


def test_ids_that_are_words_are_in_the_order_of_the_alphabet(read):
    word = {1: "zoo", 2: "farm"}.__getitem__
    annotations = read(facts(category=word, category_id=word))
    assert annotations.classes == ("dog", "cat")
    assert [row[0] for row in boxes(annotations)["b.jpg"]] == [0, 1]
