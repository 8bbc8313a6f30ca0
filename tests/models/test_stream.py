"""Many images, one after the other: the detections of single calls, in order, in whole batches."""

import dataclasses
import itertools
import re
import threading

import numpy as np
import pytest

from pytrtplugins.engines.base.detection import Timings
from pytrtplugins.engines.base.host_detection import HostDetection
from pytrtplugins.errors import ImageError, UsageError
from pytrtplugins.models import Summary, Yolov2
from pytrtplugins.vision import Detections, Sources, save_image

from .darknet_engine import FunctionEngine

ANCHORS, HEAD_DIMS = (1.0, 1.0, 3.0, 2.0), (1, 14, 2, 3)


def detector(batch=1):
    """Reports one cat, as surely as the image is bright."""

    def function(data):
        values = np.zeros((len(data), 2, 7, 2, 3), np.float32)
        values[:, 0, 4, 0, 0] = data.mean((1, 2, 3))
        values[:, 0, 5, 0, 0] = 1
        return values.reshape(len(data), *HEAD_DIMS[1:])

    engine = FunctionEngine(function, (batch, 3, 64, 96), HEAD_DIMS, anchors=ANCHORS, classes=2)
    return Yolov2(engine, ("cat", "dog"))


def image(level):
    return np.full((64, 96, 3), level, np.uint8)


@pytest.mark.parametrize("batch", [1, 3])
def test_the_detections_are_those_of_single_calls(batch):
    images, one = [image(level) for level in range(130, 250, 10)], detector()
    found = list(detector(batch).stream(images, score_threshold=0.4))
    assert [item is given for (item, _), given in zip(found, images, strict=True)] == [True] * 12
    assert [boxes for _, boxes in found] == [one(each, score_threshold=0.4) for each in images]


def test_images_fill_the_engines_batch():
    detecting = detector(4)
    assert len(list(detecting.stream(image(200) for _ in range(10)))) == 10
    assert [round(float(data[:, 0, 0, 0].sum()), 2) for data in detecting.engine.batches] == [3.14, 3.14, 2.57]


def test_items_may_be_files_or_anything_with_a_image(tmp_path):
    save_image(image(200), tmp_path / "a.png")
    seen = set()

    def read(name):
        seen.add(threading.current_thread())
        return tmp_path / name

    ((item, boxes),) = detector().stream(["a.png"], image=read)
    assert (item, len(boxes)) == ("a.png", 1)
    assert threading.main_thread() not in seen
    ((_, again),) = detector().stream([tmp_path / "a.png"])
    assert again == boxes


@pytest.mark.parametrize("batch", [1, 4])
def test_an_error_comes_at_its_images_turn(batch, tmp_path):
    results = detector(batch).stream([image(200), image(210), tmp_path / "none.jpg", image(220)])
    assert [len(next(results)[1]) for _ in range(2)] == [1, 1]
    with pytest.raises(ImageError, match=r"none\.jpg"):
        next(results)


def test_endless_images_are_looked_at_one_by_one_and_the_detector_stays_usable():
    detecting = detector()
    results = detecting.stream(image(200) for _ in itertools.count())
    for _, boxes in itertools.islice(results, 5):
        assert len(boxes) == len(detecting(image(200))) == 1
    results.close()
    assert detecting.engine.closed  # the stream's own context
    assert len(detecting(image(200))) == 1


def test_timings_are_those_of_the_images_run():
    detecting = detector()
    for _ in detecting.stream([image(200)] * 2):
        assert min(detecting.timings.preprocess_ms, detecting.timings.network_ms) > 0


def test_wrong_thresholds_and_no_images():
    assert list(detector().stream([])) == []
    with pytest.raises(UsageError, match="iou_threshold"):
        next(detector().stream([image(1)], iou_threshold=2))


def test_frames_of_sources_come_with_their_detections(tmp_path):
    for level in (200, 230):
        save_image(image(level), tmp_path / f"{level}.png")
    found = list(detector(2).stream(Sources([tmp_path])))
    assert [(frame.stem, len(boxes), boxes.source) for frame, boxes in found] == [
        ("200", 1, tmp_path / "200.png"),
        ("230", 1, tmp_path / "230.png"),
    ]
    assert [str(boxes[0]) for _, boxes in found] == [str(detector()(image(level))[0]) for level in (200, 230)]


@pytest.mark.parametrize("given", [Sources, list])
def test_files_are_decoded_into_the_memory_that_the_context_gives(given, tmp_path, monkeypatch):
    for level in (200, 230):
        save_image(image(level), tmp_path / f"{level}.jpg")
    memory, seen = list[np.ndarray](), list[np.ndarray]()

    def empty(size):
        memory.append(np.empty(size, np.uint8))
        return memory[-1]

    class Watching(HostDetection):
        memory = property(lambda self: empty)

        def _detect(self, images, *thresholds):
            seen.extend(images)
            return super()._detect(images, *thresholds)

    monkeypatch.setattr("tests.models.darknet_engine.HostDetection", Watching)
    found = list(detector(2).stream(given(sorted(tmp_path.glob("*.jpg")))))
    assert [len(boxes) for _, boxes in found] == [1, 1]
    assert [any(np.shares_memory(each, held) for held in memory) for each in seen] == [True, True]
    assert len(memory) == 2


def test_what_a_source_could_not_read_is_raised_behind_the_others(tmp_path):
    save_image(image(200), tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    seen, sources = list[str](), Sources([tmp_path])
    with pytest.raises(ImageError, match=r"1 of 2 files[\s\S]*b\.png"):
        seen.extend(frame.stem for frame, _ in detector(4).stream(sources))
    assert seen == ["a"]


def test_tracking_asks_for_low_scores_and_numbers_objects(monkeypatch):
    class Numbering:
        lowest = 0.1

        def __init__(self, threshold):
            assert threshold == 0.9

        def update(self, found, frame):
            assert frame is None
            return Detections([dataclasses.replace(item, track_id=7) for item in found])

    monkeypatch.setattr("pytrtplugins.models.yolov2.Tracker", Numbering)
    ((_, boxes),) = detector().stream([image(200)], score_threshold=0.9, track=True)
    assert boxes.track_ids.tolist() == [7]  # its score is 0.69


def test_a_run_is_summed_up():
    summary, detecting = Summary(), detector()
    assert str(summary) == "no images"
    for _, found in detecting.stream([image(200)] * 3):
        summary.add(found, detecting.timings)
    assert re.fullmatch(
        r"3 images, 3 detections: [\d.]+ images/s; a run: median [\d.]+ ms, p99 [\d.]+ ms", str(summary)
    )


def test_the_times_of_runs_are_summed_up_by_their_median_and_99th_percentile():
    summary = Summary()
    for time in range(1, 102):
        summary.add(Detections([]), Timings(network_ms=float(time)))
    assert str(summary).endswith("a run: median 51.0 ms, p99 100.0 ms")
