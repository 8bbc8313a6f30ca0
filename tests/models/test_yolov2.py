import re
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.engines.base.detection import Timings
from pytrtplugins.errors import BindingError, ImageError, ModelError, UsageError
from pytrtplugins.models import Yolov2, read_heads
from pytrtplugins.models import yolov2 as module
from pytrtplugins.vision import load_image, save_image
from tests.clock import Clock

from .darknet_engine import FunctionEngine, darknet_engine, region_model

ANCHORS, CLASSES = (1.0, 1.0, 3.0, 2.0), 2
DIMS, HEAD_DIMS = (1, 3, 64, 96), (1, 14, 2, 3)
IMAGE = np.zeros((64, 96, 3), np.uint8)


def head_with(*boxes):
    """Head values of a batch of one: (anchor, row, column, objectness, class probabilities) each."""
    values = np.zeros((1, 2, 7, 2, 3), np.float32)
    for anchor, row, column, objectness, classes in boxes:
        values[0, anchor, :, row, column] = [0.5, 0.5, 0, 0, objectness, *classes]
    return values.reshape(HEAD_DIMS)


def detector_of(values, dims=DIMS, names=("cat", "dog"), distance_power=None, **options):
    def function(data):
        return np.repeat(values, len(data), 0)

    fields = {"anchors": ANCHORS, "classes": CLASSES, "distance_power": distance_power}
    return Yolov2(FunctionEngine(function, dims, HEAD_DIMS, **fields), names, **options)


def test_a_box_comes_back_in_pixels_of_the_image():
    image = np.zeros((128, 192, 3), np.uint8)
    (found,) = detector_of(head_with((1, 1, 2, 0.9, (0.1, 0.9))))(image)
    assert (found.label, found.class_id) == ("dog", 1)
    assert found.score == pytest.approx(0.81)
    # centre (2.5, 1.5) cells of 64 image pixels, anchor (3, 2) cells, clipped to the image
    assert found.xyxy == pytest.approx((64, 32, 192, 128))


def test_an_image_has_at_most_200_boxes_by_default():
    assert detector_of(head_with()).context.max_detections == 200


def test_the_best_comes_first_and_overlap_is_suppressed():
    values = head_with((0, 0, 0, 0.8, (1, 0)), (0, 1, 2, 0.9, (1, 0)), (1, 0, 0, 0.7, (0, 1)), (1, 0, 1, 0.6, (0, 1)))
    found = detector_of(values)(IMAGE, iou_threshold=0.3)
    assert [(item.label, round(item.score, 2)) for item in found] == [("cat", 0.9), ("cat", 0.8), ("dog", 0.7)]


def test_the_threshold_is_the_lowest_score():
    values = head_with((0, 0, 0, 0.8, (1, 0)), (0, 1, 2, 0.4, (1, 0)))
    assert len(detector_of(values)(IMAGE)) == 1
    assert len(detector_of(values)(IMAGE, score_threshold=0.3)) == 2


def test_boxes_that_overlap_no_more_than_was_asked_for_stay():
    """Boxes of 3 x 2 cells, one cell apart: 2 x 2 of 4 x 2 cells are of both, half of them."""
    detector = detector_of(head_with((1, 0, 0, 0.9, (1, 0)), (1, 0, 1, 0.8, (1, 0))))
    kept = [len(detector(IMAGE, iou_threshold=threshold)) for threshold in (0.45, 0.49, 0.51, 1)]
    assert kept == [1, 1, 2, 2]
    assert len(detector(IMAGE)) == 1


def test_a_network_whose_cfg_counts_the_distance_keeps_boxes_beside_each_other():
    """The boxes above: (1/3)² of (4/3)² + 1, to the power of 0.6 that is 0.145 of the overlap of 0.5."""
    values = head_with((1, 0, 0, 0.9, (1, 0)), (1, 0, 1, 0.8, (1, 0)))
    detector = detector_of(values, distance_power=0.6)
    assert [len(detector(IMAGE, iou_threshold=threshold)) for threshold in (0.35, 0.36, 0.45)] == [1, 2, 2]
    for power in (-1, "x", [0.6]):
        with pytest.raises(ModelError, match="its fields are incomplete or wrong"):
            detector_of(values, distance_power=power)


def test_nothing_found_is_an_empty_list():
    assert detector_of(head_with())(IMAGE) == []


def test_a_list_gives_a_list_each(tmp_path):
    save_image(IMAGE, tmp_path / "a.png")
    detector = detector_of(head_with((0, 0, 0, 0.8, (1, 0))))
    both = detector([tmp_path / "a.png", IMAGE])
    assert [len(found) for found in both] == [1, 1]
    assert both[0] == detector(str(tmp_path / "a.png"))
    assert detector([]) == []


@pytest.mark.parametrize(("batch", "runs"), [(1, [1, 1, 1]), (2, [2, 2]), (4, [4]), ("N", [1, 1, 1])])
def test_the_engines_batch_is_kept(batch, runs):
    detector = detector_of(head_with((0, 0, 0, 0.8, (1, 0))), (batch, *DIMS[1:]))
    assert [len(found) for found in detector([IMAGE] * 3)] == [1, 1, 1]
    assert [len(data) for data in detector.engine.batches] == runs


def test_where_the_engine_leaves_the_batch_free_a_run_has_no_more_images_than_there_are():
    engine = detector_of(head_with((0, 0, 0, 0.8, (1, 0))), ("N", *DIMS[1:])).engine
    with Yolov2(engine, batch=4) as detector:
        assert [len(found) for found in detector([IMAGE] * 6)] == [1] * 6
    assert [len(data) for data in engine.batches] == [4, 2]


def test_leaving_the_block_releases_the_context():
    with detector_of(head_with()) as detector:
        assert detector(IMAGE) == []
    assert detector.engine.closed


def test_warming_up_is_one_run():
    detector = detector_of(head_with((0, 0, 0, 0.8, (1, 0))))
    detector.warm_up()
    assert len(detector.engine.batches) == 1


def test_timings_are_of_the_last_call():
    detector = detector_of(head_with())
    detector([IMAGE] * 3)
    timings = detector.timings
    assert min(timings.preprocess_ms, timings.network_ms, timings.postprocess_ms) > 0
    assert timings.total_ms == pytest.approx(timings.preprocess_ms + timings.network_ms + timings.postprocess_ms)


def test_names_come_from_a_file(tmp_path):
    (tmp_path / "two.names").write_text("cat\ndog\n\n")
    assert detector_of(head_with(), names=tmp_path / "two.names").names == ("cat", "dog")


def test_without_names_classes_have_numbers():
    assert detector_of(head_with(), names=None).names == ("class 0", "class 1")


def test_another_detector_of_an_engine_is_the_same_but_for_its_number_of_boxes():
    first = detector_of(head_with((1, 1, 2, 0.9, (0.1, 0.9)), (0, 0, 0, 0.8, (0.9, 0.1))), mode="darknet")
    second = first.another(1)
    assert (second.engine, second.names, second.context.mode) == (first.engine, first.names, "darknet")
    image = np.zeros((128, 192, 3), np.uint8)
    assert second(image) == first(image)[:1]


@pytest.mark.parametrize("names", [("cat",), ("cat", "dog", "cow"), ()])
def test_another_number_of_names_is_refused(names):
    with pytest.raises(UsageError, match="expected 2 class names") as caught:
        detector_of(head_with(), names=names)
    assert (caught.value.expected, caught.value.found) == (2, len(names))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"names": "none.names"}, UsageError, "cannot be read"),
        ({"mode": "crop"}, UsageError, "mode"),
        ({"dims": (1, 4, 64, 96)}, BindingError, "expected dims"),
    ],
)
def test_what_cannot_be_a_detector_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        detector_of(head_with(), **given)


@pytest.mark.parametrize(
    ("image", "options", "error", "message"),
    [
        (IMAGE, {"score_threshold": 1.5}, UsageError, "score_threshold"),
        (IMAGE, {"iou_threshold": -1}, UsageError, "iou_threshold"),
        ("none.jpg", {}, ImageError, r"none\.jpg"),
    ],
)
def test_thresholds_outside_0_to_1_and_bad_images_are_refused(image, options, error, message):
    with pytest.raises(error, match=message):
        detector_of(head_with())(image, **options)


def test_a_model_without_heads_is_refused():
    model = region_model(DIMS, HEAD_DIMS, anchors=ANCHORS, classes=CLASSES)
    del model.metadata_props[:]
    with pytest.raises(ModelError, match="no output comes from a region or yolo layer"):
        read_heads(model)


@pytest.mark.parametrize(
    ("fields", "text"),
    [({"tree": [0, 1]}, "tree"), ({"coords": 36}, "4 coordinates"), ({"classes": None}, "incomplete")],
)
def test_heads_that_cannot_be_decoded_are_refused(fields, text):
    with pytest.raises(ModelError, match=text):
        read_heads(region_model(DIMS, HEAD_DIMS, **{"anchors": ANCHORS, "classes": CLASSES, **fields}))


def test_broken_metadata_are_refused():
    model = region_model(DIMS, HEAD_DIMS, anchors=ANCHORS, classes=CLASSES)
    model.metadata_props[0].value = "{"
    with pytest.raises(ModelError, match="not JSON"):
        read_heads(model)


def test_heads_are_read_from_plugin_nodes_too():
    model = region_model(DIMS, HEAD_DIMS, anchors=ANCHORS, classes=CLASSES)
    del model.metadata_props[:]
    from onnx import helper

    node = helper.make_node(
        "Region", ["data"], ["head_region"], domain="darknet", anchors=list(ANCHORS), classes=CLASSES
    )
    model.graph.node[0].CopyFrom(node)
    (head,) = read_heads(model)
    assert (head.type, head.anchors, head.classes) == ("region", ANCHORS, CLASSES)


@pytest.fixture(scope="module")
def darknet_network(libdarknet, shipped):
    with libdarknet.load(f"{shipped}.cfg", f"{shipped}.weights") as network:
        yield network


def cfg_anchors(path):
    return tuple(map(float, re.findall(r"^anchors=(.*)$", path.read_text(), re.MULTILINE)[0].split(",")))


@pytest.mark.parametrize("name", ["dog.jpg", pytest.param("person.jpg", marks=pytest.mark.slow)])
def test_decoding_and_suppression_are_darknets(darknet_network, libdarknet, shipped, darknet_image, name):
    """The same image and the same network values: only this package's own part can differ."""
    pixels = libdarknet.load_image(darknet_image(name))
    image = np.rint(pixels * 255).astype(np.uint8).transpose(1, 2, 0)
    expected = darknet_network.detections(pixels, threshold=0.1)
    engine = darknet_engine(darknet_network, cfg_anchors(shipped.with_suffix(".cfg")), 6)
    found = Yolov2(engine, shipped.with_suffix(".names"), mode="darknet")(image, score_threshold=0.1)
    height, width = image.shape[:2]
    assert len(found) == len(expected) > 0
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.class_id == theirs.class_id
        assert ours.score == pytest.approx(theirs.score, abs=1e-6)
        np.testing.assert_allclose(ours.xyxy, np.clip(theirs.xyxy, 0, [width, height] * 2), atol=1e-3)


def test_images_decoded_by_pillow_are_near_enough_to_darknets(libdarknet, darknet_image):
    ours, theirs = load_image(darknet_image("dog.jpg")), libdarknet.load_image(darknet_image("dog.jpg"))
    assert np.abs(ours.transpose(2, 0, 1) / 255 - theirs).mean() < 0.003


def test_results_know_their_image(tmp_path):
    save_image(IMAGE, tmp_path / "a.png")
    detector = detector_of(head_with((0, 0, 0, 0.8, (1, 0))))
    path, array = detector([tmp_path / "a.png", IMAGE])
    assert (path.source, array.source is IMAGE) == (tmp_path / "a.png", True)
    np.testing.assert_array_equal(path.plot(), array.plot())
    assert path.boxes_xyxy.shape == (1, 4)
    assert [found.source for _, found in detector.stream([str(tmp_path / "a.png")])] == [str(tmp_path / "a.png")]
    assert [found.source for _, found in detector.stream([0], image=lambda item: tmp_path / "a.png")] == [
        tmp_path / "a.png"
    ]


def test_a_stream_does_not_keep_arrays_that_it_made():
    detector = detector_of(head_with((0, 0, 0, 0.8, (1, 0))))
    assert [found.source for _, found in detector.stream([0, 1], image=lambda item: IMAGE)] == [None, None]
    assert [found.source is IMAGE for _, found in detector.stream([IMAGE])] == [True]


def test_times_are_in_milliseconds_and_those_of_all_runs_are_added(monkeypatch):
    """Two runs: each reads for 1/16 s and names its boxes for 1/32 s; the engine tells 1, 2 and 4 ms."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    context = SimpleNamespace(detect=lambda images, **options: [[]] * len(images), timings=Timings(1.0, 2.0, 4.0))
    model = SimpleNamespace(batch=2, context=context)

    def takes(seconds):
        return lambda *given: setattr(clock, "now", clock.now + seconds) or []

    monkeypatch.setattr(module, "_read", takes(1 / 32))
    model._detections = takes(1 / 64)
    model._make_detections = lambda *given: Yolov2._make_detections(model, *given)
    assert len(Yolov2._detect(model, ["a", "b", "c", "d"], 0.5, 0.5)) == 4
    assert model.timings == Timings(2 * (62.5 + 1), 4.0, 2 * (31.25 + 4))


def test_reading_is_counted_in_milliseconds_in_a_stream_too(monkeypatch):
    """Two images in one run, each of which is read for 1,000 s of this clock; the engine takes milliseconds of its own."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "threads_for_files", lambda: 1)
    read = module._read
    monkeypatch.setattr(module, "_read", lambda *given: setattr(clock, "now", clock.now + 1000) or read(*given))
    detector = detector_of(head_with(), dims=(2, *DIMS[1:]))
    assert len(list(detector.stream([IMAGE, IMAGE], image=lambda item: item))) == 2
    assert detector.timings.preprocess_ms == pytest.approx(2e6, abs=1e4)
