import json
import math
import sys
import tarfile

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from pytrtplugins.errors import FormatError, ImageError, NoDataError, UsageError
from pytrtplugins.models import ClassResult, Evaluation, YoloData, Yolov2, evaluate
from pytrtplugins.vision import Detection, save_image
from tests.mlops.shards.turned import turned, white

from .darknet_engine import FunctionEngine

CLASSES = ("cat", "dog")
# image → rows of class, centre x, centre y, width, height
TRUTH = {"a": [(0, 0.5, 0.5, 0.4, 0.4)], "b": [(1, 0.25, 0.25, 0.2, 0.2), (0, 0.7, 0.7, 0.4, 0.4)], "c": []}
WIDTH, HEIGHT = 100, 80


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "set"
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for number, (name, rows) in enumerate(TRUTH.items()):
        save_image(np.full((HEIGHT, WIDTH, 3), number, np.uint8), folder / "images" / f"{name}.png")
        (folder / "labels" / f"{name}.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    (folder / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    (folder / "val.txt").write_text("".join(f"images/{name}.png\n" for name in TRUTH))
    return folder


class Scripted:
    """A detector that reports what it is told for each image; images are known by their grey."""

    def __init__(self, reports, names=CLASSES):
        self.reports, self.names = reports, names

    def __call__(self, image, *, score_threshold=0.5, iou_threshold=0.45):
        self.thresholds = score_threshold, iou_threshold
        found = self.reports.get("abc"[image[0, 0, 0]], [])
        return [Detection(self.names[k], k, score, box) for k, score, box in found if score >= score_threshold]


def corners(row):
    _, x, y, w, h = row
    return ((x - w / 2) * WIDTH, (y - h / 2) * HEIGHT, (x + w / 2) * WIDTH, (y + h / 2) * HEIGHT)


def perfect():
    return {name: [(row[0], 0.9, corners(row)) for row in rows] for name, rows in TRUTH.items()}


def test_a_perfect_detector_has_1(data):
    result = evaluate(Scripted(perfect()), data)
    assert (result.map50, result.map, result.images) == (pytest.approx(1), pytest.approx(1), 3)
    assert [(row.name, row.objects, row.detections) for row in result.classes] == [("cat", 2, 2), ("dog", 1, 1)]


@pytest.mark.parametrize("drawn", ["shown", "stored"])
def test_images_that_exif_turns_are_measured_upright(tmp_path, drawn):
    """By a detector that says where it sees white, on all orientations; labels do not say what they are drawn on."""

    class White:
        names, seen = ("box",), 0

        def __call__(self, image, **options):
            White.seen += 1
            rows, columns = (np.flatnonzero((image[:, :, 0] > 127).any(axis)) for axis in (1, 0))
            return [Detection("box", 0, 0.9, (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))]

    (tmp_path / "classes.txt").write_text("box\n")
    (tmp_path / "val.txt").write_text("".join(f"{orientation}.png\n" for orientation in range(1, 9)))
    for orientation in range(1, 9):
        (tmp_path / f"{orientation}.png").write_bytes(turned(orientation))
        (tmp_path / f"{orientation}.txt").write_text(" ".join(map(str, white(turned(orientation), drawn))))
    result = evaluate(White(), YoloData(tmp_path, exif=drawn))
    assert (result.map50, result.map, White.seen) == (pytest.approx(1), pytest.approx(1), 8)
    with pytest.raises(
        FormatError, match=r"2\.png: EXIF \(orientation 2\) turns it.*give --exif shown or --exif stored"
    ):
        evaluate(White(), tmp_path)
    assert White.seen == 8  # it says so before an image is looked at


def test_a_detector_that_finds_nothing_has_0(data):
    result = evaluate(Scripted({}), data)
    assert (result.map50, result.map) == (0, 0)


@pytest.mark.parametrize(
    ("share", "ap50", "ap"), [(0.98, 1, 1.0), (0.93, 1, 0.9), (0.68, 1, 0.4), (0.51, 1, 0.1), (0.49, 0, 0)]
)
def test_the_figure_of_all_overlaps_is_the_mean_of_ten(data, share, ap50, ap):
    """Boxes that have this share of the labelled ones' width: it is their overlap, and counts up to 0.5, 0.55, ... 0.95."""
    reports = {
        name: [(row[0], 0.9, corners((*row[:3], share * row[3], row[4]))) for row in rows]
        for name, rows in TRUTH.items()
    }
    result = evaluate(Scripted(reports), data)
    assert (result.map50, result.map) == pytest.approx((ap50, ap))
    assert [(row.ap50, row.ap) for row in result.classes] == [pytest.approx((ap50, ap))] * 2


def test_curves_hold_precision_at_101_recalls_and_their_means_are_the_figures(data):
    """One cat of two is half the recall, of which COCO samples 0.00 to 0.50; a false dog above all halves the precision."""
    result = evaluate(Scripted({**perfect(), "a": [], "c": [(1, 0.99, (0.0, 0.0, 50.0, 50.0))]}), data)
    cat, dog = result.precision_at_50.T
    np.testing.assert_allclose(cat, np.where(np.arange(101) <= 50, 1, 0))
    np.testing.assert_allclose(dog, np.full(101, 0.5))
    assert [row.ap50 for row in result.classes] == pytest.approx([51 / 101, 0.5])
    assert result.map50 == pytest.approx((51 / 101 + 0.5) / 2)


def test_a_bar_shows_on_a_terminal_how_many_images_were_looked_at(data, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    evaluate(Scripted(perfect()), data)
    assert "3/3" in capsys.readouterr().err
    evaluate(Scripted(perfect()), data, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("limit", "images"), [(None, 3), (0, 1), (1, 1), (2, 2), (9, 3)])
def test_a_limit_is_the_number_of_images(data, limit, images):
    assert evaluate(Scripted(perfect()), data, limit=limit).images == images


def test_of_the_first_image_alone_a_class_has_no_object_and_no_curve_and_the_figures_are_json(data):
    result = evaluate(Scripted(perfect()), data, limit=1)
    assert result.images == 1
    assert result.classes[1].precision_at_50 == ()
    assert result.precision_at_50.shape == (101, 2)
    assert np.isnan(result.precision_at_50).all(0).tolist() == [False, True]
    values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [row["ap50"] for row in values["classes"]] == [pytest.approx(1), None]
    assert [len(row["precision_at_50"]) for row in values["classes"]] == [101, 0]
    assert values["map50"] == pytest.approx(1)


def test_two_evaluations_with_the_same_figures_are_equal(data):
    first, second = (evaluate(Scripted(perfect()), data) for _ in range(2))
    assert first.classes == second.classes
    assert len(repr(first)) < 1000


@pytest.mark.parametrize(("shift", "ap"), [(5, 0.3), (6.3, 0.1)])
def test_a_shifted_box_counts_at_the_overlaps_that_it_has(data, shift, ap):
    """IoU 15 / 25 = 0.6, so at 0.5, 0.55 and 0.6 of ten; 13.7 / 26.3 = 0.52, so at 0.5 only."""
    reports = perfect()
    x1, y1, x2, y2 = corners(TRUTH["b"][0])
    reports["b"][0] = (1, 0.9, (x1 + shift, y1, x2 + shift, y2))
    dog = evaluate(Scripted(reports), data).classes[1]
    assert (dog.ap50, dog.ap) == (pytest.approx(1), pytest.approx(ap))


def test_classes_are_matched_by_name(data):
    names = ("bird", "DOG", "Cat")
    swapped = {name: [(2 if k == 0 else 1, score, box) for k, score, box in rows] for name, rows in perfect().items()}
    swapped["c"] = [(0, 0.99, (0.0, 0.0, 9.0, 9.0))]
    assert evaluate(Scripted(swapped, names), data).map50 == pytest.approx(1)


def test_classes_unknown_to_the_detector_are_left_out_and_named(data):
    result = evaluate(Scripted({"b": [(0, 0.9, corners(TRUTH["b"][0]))]}, names=("dog",)), data)
    assert (result.map50, result.ignored) == (pytest.approx(1), ("cat",))


def test_names_that_differ_can_be_mapped(data):
    result = evaluate(Scripted(perfect(), names=("kitten", "dog")), data, class_map={"cat": "kitten"})
    assert result.map50 == pytest.approx(1)


def test_several_classes_of_the_data_are_measured_as_one(data):
    everything = {name: [(0, score, box) for _, score, box in found] for name, found in perfect().items()}
    result = evaluate(Scripted(everything, names=("animal",)), data, class_map={"cat": "animal", "dog": "animal"})
    (row,) = result.classes
    assert (row.name, row.objects, row.detections, row.ap50) == ("animal", 3, 3, pytest.approx(1))


def test_names_that_differ_in_case_only_are_two_classes(data):
    (data / "classes.txt").write_text("cat\nCat\n")
    result = evaluate(Scripted(perfect(), names=("cat", "Cat")), data)
    assert [(row.name, row.objects, row.detections) for row in result.classes] == [("cat", 2, 2), ("Cat", 1, 1)]
    assert result.map50 == pytest.approx(1)


def test_images_without_an_object_that_can_be_measured_are_refused(data):
    (data / "val.txt").write_text("images/c.png\n")
    with pytest.raises(NoDataError, match=r"1 images have no object of the 2 classes that are measured \(cat, dog\)"):
        evaluate(Scripted(perfect()), data)


def test_nothing_in_common_is_refused(data):
    with pytest.raises(UsageError, match="share no class") as caught:
        evaluate(Scripted({}, names=("bird", "plane")), data)
    assert "Do: " in str(caught.value)
    assert "--names" in str(caught.value)


def test_a_map_of_unknown_classes_is_refused(data):
    with pytest.raises(UsageError, match="class_map"):
        evaluate(Scripted({}), data, class_map={"tv": "tvmonitor"})


def test_a_tar_gives_the_same_as_its_folder(data, tmp_path):
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        for path in sorted(data.rglob("*.*")):
            tar.add(path, path.relative_to(data).as_posix())
    reports = {**perfect(), "a": []}
    ours, theirs = (evaluate(Scripted(reports), place).to_dict() for place in (data, tmp_path / "set.tar"))
    assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def test_parts_make_one_set(data, tmp_path):
    with tarfile.open(tmp_path / "images.tar", "w") as tar:
        tar.add(data / "images", "images")
    for path in (data / "images").iterdir():
        path.unlink()
    (data / "images").rmdir()
    assert evaluate(Scripted(perfect()), [data, tmp_path / "images.tar"]).map50 == pytest.approx(1)


def test_parts_with_other_images_of_one_name_are_refused(data, tmp_path):
    with tarfile.open(tmp_path / "more.tar", "w") as tar:
        tar.add(data / "images" / "a.png", "images/b.png")
    with pytest.raises(FormatError, match=r"images/b\.png: other contents in .*b\.png and in .*more\.tar"):
        evaluate(Scripted(perfect()), [data, tmp_path / "more.tar"])


@pytest.mark.parametrize(
    ("line", "error", "what"),
    [
        ("images/d.png", NoDataError, "val.txt line 1 names 'images/d.png', which is missing"),
        ("a", FormatError, "'a' in val.txt may be"),
        ("\n", NoDataError, "empty"),
    ],
)
def test_a_list_names_one_image_that_is_there(data, line, error, what):
    (data / "other").mkdir()
    (data / "images/a.png").rename(data / "other/a.png")
    (data / "more").mkdir()
    save_image(np.zeros((2, 2, 3), np.uint8), data / "more/a.png")
    (data / "val.txt").write_text(line)
    with pytest.raises(error, match=what):
        YoloData(data).images()


def test_images_without_a_single_label_are_refused(data):
    for path in (data / "labels").iterdir():
        path.unlink()
    assert len(YoloData(data).images()) == 3  # calibration needs no labels
    with pytest.raises(
        NoDataError, match=r"none of 3 photos has labels: looked for NAME\.txt in labels/, images/, and"
    ):
        evaluate(Scripted(perfect()), data)


def test_the_table_has_a_row_per_class_and_one_for_all():
    rows = ClassResult("wildcat", 0.75, 0.5, 2, 31, ()), ClassResult("cow", math.nan, math.nan, 0, 4, ())
    lines = Evaluation(0.625, 0.25, rows, 3, 1.0).table().splitlines()
    assert [line.split() for line in lines] == [
        ["class", "objects", "detections", "AP50", "AP50:95"],
        ["wildcat", "2", "31", "0.750", "0.500"],
        ["cow", "0", "4", "-", "-"],
        ["all", "2", "35", "0.625", "0.250"],
    ]
    assert {line[:9].rstrip() for line in lines} == {"class", "wildcat", "cow", "all"}


def test_the_detector_is_told_both_thresholds(data):
    detector = Scripted(perfect())
    evaluate(detector, data)
    assert detector.thresholds == (0.005, 0.45)
    evaluate(detector, data, score_threshold=0.25, iou_threshold=0.7)
    assert detector.thresholds == (0.25, 0.7)


def test_yolov2_is_told_both_thresholds_too(data):
    """Two boxes of one class that share a third: the weaker one is suppressed, or not asked for, or found."""
    head = np.zeros((1, 2, 7, 2, 3), np.float32)
    head[0, 0, :, 0, 0] = [0.5, 0.5, 0, 0, 0.9, 1, 0]
    head[0, 0, :, 0, 1] = [0, 0.5, 0, 0, 0.4, 1, 0]  # half a cell to the right, as wide as the first
    values = head.reshape(1, 14, 2, 3)
    engine = FunctionEngine(
        lambda images: values, (1, 3, 64, 96), values.shape, anchors=(1.0, 1.0, 3.0, 2.0), classes=2
    )
    counts = [
        evaluate(Yolov2(engine, CLASSES), data, score_threshold=score, iou_threshold=overlap).classes[0].detections
        for score, overlap in ((0.3, 0.5), (0.3, 0.2), (0.5, 0.5))
    ]
    assert counts == [2 * 3, 3, 3]
    assert evaluate(Yolov2(engine, CLASSES), data).computed == engine.arithmetic
    assert evaluate(Scripted(perfect()), data).computed is None


def test_missing_data_say_where_they_were_looked_for(tmp_path):
    with pytest.raises(NoDataError, match="no such folder") as caught:
        YoloData(tmp_path / "none")
    assert str(tmp_path / "none") in str(caught.value)


def test_a_missing_list_is_named(data):
    with pytest.raises(NoDataError, match=r"test\.txt is missing"):
        YoloData(data).images("test.txt")


@pytest.mark.parametrize(
    "line", ["0 0.5 0.5 0.1", "x 0.5 0.5 0.1 0.1", "7 0.5 0.5 0.1 0.1", "0.5 0 0 0 0", "0 nan 0 0 0"]
)
def test_a_broken_label_is_refused_with_file_and_line(data, line):
    (data / "labels" / "a.txt").write_text(f"0 0.5 0.5 0.1 0.1\n{line}\n")
    with pytest.raises(FormatError, match=r"labels/a\.txt line 2") as caught:
        YoloData(data).boxes("images/a.png")
    assert caught.value.line == 2


def test_an_image_without_a_label_file_has_no_objects(data):
    (data / "labels" / "a.txt").unlink()
    assert YoloData(data).boxes("images/a.png").shape == (0, 5)


def test_a_damaged_image_is_our_error(data):
    (data / "images" / "a.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(ImageError, match=r"a\.png"):
        evaluate(Scripted({}), data)


def test_what_is_no_tar_is_refused(tmp_path):
    (tmp_path / "set.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(FormatError, match="not an uncompressed tar"):
        YoloData(tmp_path / "set.tar")


@pytest.mark.parametrize("kept", [1, 5, 200, 1000])
def test_the_figure_is_pycocotools_however_many_boxes_the_detector_keeps(tmp_path, kept):
    """400 boxes of two classes, of which 40 are labelled: many of the others have higher scores."""
    random = np.random.default_rng(3)
    side, kinds = 20, random.permutation(np.repeat([0, 1], [330, 70]))
    head = np.zeros((1, 1, 7, side, side), np.float32)
    head[0, 0, 0:2] = 0.5
    head[0, 0, 4] = random.permutation(np.where(kinds, 0.02, 0.5) + np.linspace(0, 0.3, 400)).reshape(side, side)
    head[0, 0, 5], head[0, 0, 6] = (kinds.reshape(side, side) == kind for kind in (0, 1))
    labelled = random.choice(400, 40, replace=False)
    rows = [(kinds[cell], (cell % side + 0.5) / side, (cell // side + 0.5) / side, 0.04, 0.04) for cell in labelled]
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    save_image(np.zeros((640, 640, 3), np.uint8), tmp_path / "images" / "a.png")
    (tmp_path / "labels" / "a.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    (tmp_path / "val.txt").write_text("images/a.png\n")
    values = head.reshape(1, 7, side, side)
    engine = FunctionEngine(lambda images: values, (1, 3, 640, 640), values.shape, anchors=(0.8, 0.8), classes=2)
    found = Yolov2(engine, CLASSES, max_detections=100_000)(np.zeros((640, 640, 3), np.uint8), score_threshold=0.005)
    assert [sum(box.class_id == kind for box in found) for kind in (0, 1)] == [330, 70]
    result = evaluate(Yolov2(engine, CLASSES, max_detections=kept), tmp_path)
    assert (result.map50, result.map) == pytest.approx(by_pycocotools(rows, found), abs=1e-12)
    assert [row.detections for row in result.classes] == [330, 70]


def by_pycocotools(rows, found):
    """mAP50 and mAP of one image of 640 x 640, by pycocotools' own `summarize`."""
    truths = [(kind, 1.0, (x - w / 2, y - h / 2, w, h)) for kind, x, y, w, h in rows]
    boxes = [
        (box.class_id, box.score, [*box.xyxy[:2], box.xyxy[2] - box.xyxy[0], box.xyxy[3] - box.xyxy[1]])
        for box in found
    ]
    sides = []
    for scale, entries in ((640, truths), (1, boxes)):
        coco = COCO()
        coco.dataset = {
            "images": [{"id": 1, "width": 640, "height": 640}],
            "categories": [{"id": kind, "name": str(kind)} for kind in (0, 1)],
            "annotations": [
                {"id": number, "image_id": 1, "category_id": int(kind), "score": score, "iscrowd": 0,
                 "bbox": [scale * value for value in box], "area": scale * scale * box[2] * box[3]}
                for number, (kind, score, box) in enumerate(entries, 1)
            ],
        }  # fmt: skip
        coco.createIndex()
        sides.append(coco)
    judge = COCOeval(*sides, "bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    return judge.stats[1], judge.stats[0]
