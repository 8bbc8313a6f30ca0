"""From images to boxes around any engine: thresholds, the number of boxes, and times, to the last one."""

import numpy as np
import pytest

from pytrtplugins.engines.base import host_detection
from pytrtplugins.engines.base.detection import Timings
from pytrtplugins.models import read_heads
from tests.models.darknet_engine import FunctionEngine

SCORES = np.array([0.25, 0.5, 0.75], np.float32)
IMAGE = np.zeros((32, 96, 3), np.uint8)


def detection(scores=SCORES, batch=1, cells=3, **options):
    """A context whose network finds a box in each of some cells, apart from each other, with these scores of one class.

    The first image of a batch has the scores as they stand, each next one an eighth less of them.
    """

    def function(data):
        values = np.zeros((len(data), 6, 1, cells), np.float32)
        values[:, :2], values[:, 4] = 0.5, 1
        for image in range(len(data)):
            values[image, 5, 0, : len(scores)] = np.float32(scores) * np.float32(1 - image / 8)
        return values

    engine = FunctionEngine(
        function, (batch, 3, 32, 32 * cells), (batch, 6, 1, cells), anchors=(0.5, 0.5), classes=1, **options
    )
    return host_detection.HostDetection(engine, read_heads(engine.model_without_weights), (32 * cells, 32))


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
@pytest.mark.parametrize("score", [0.3, 0.5, 0.7])
def test_a_score_that_equals_the_threshold_is_not_above_it(score, kind):
    """Scores are float32, and so is the threshold, whatever it was given as: 0.3 is more as float32, and 0.7 less."""
    near = [np.nextafter(np.float32(score), np.float32(side)) for side in (0, 1)]
    context = detection([near[0], score, near[1]])
    (boxes,) = context.detect([IMAGE], score_threshold=kind(score))
    assert boxes.scores.tolist() == [near[1]]
    assert boxes.boxes_cxcywh[:, 0].tolist() == pytest.approx([2.5 / 3])


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_the_best_are_as_many_as_the_context_was_made_for(most):
    context = detection([0.5, 0.75, 0.25])
    context.max_detections = most
    (boxes,) = context.detect([IMAGE], score_threshold=0.0)
    assert boxes.scores.tolist() == [0.75, 0.5, 0.25][:most]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_image_of_a_batch_has_its_own_boxes(count):
    context = detection(batch=3)
    found = context.detect([IMAGE] * count, score_threshold=0.5)
    wanted = [[0.75 * (1 - image / 8)] for image in range(count)]
    assert [boxes.scores.tolist() for boxes in found] == wanted


@pytest.mark.parametrize("count", [1, 3])
def test_times_are_milliseconds_of_each_part(monkeypatch, count):
    """20 ms for each image's letterbox, 50 ms of the network, 7 ms for each image's suppression."""
    now = [100.0]
    monkeypatch.setattr(host_detection.time, "perf_counter", lambda: now[0])

    def taking(seconds, function):
        def run(*arguments, **options):
            now[0] += seconds
            return function(*arguments, **options)

        return run

    monkeypatch.setattr(host_detection, "letterbox", taking(0.020, host_detection.letterbox))
    monkeypatch.setattr(host_detection, "nms", taking(0.007, host_detection.nms))
    monkeypatch.setattr(host_detection, "threads_for_files", lambda: 1)
    context = detection(batch=3)
    context._context.function = taking(0.050, context._context.function)
    context.detect([IMAGE] * count)
    spent = context.timings
    assert (spent.preprocess_ms, spent.network_ms, spent.postprocess_ms) == pytest.approx((20 * count, 50, 7 * count))
    assert spent.total_ms == pytest.approx(50 + 27 * count)


def test_times_are_added_part_by_part():
    total = Timings(1, 20, 300) + Timings(4000, 50000, 600000)
    assert total == Timings(4001, 50020, 600300)
    assert total.total_ms == 654321
    assert str(Timings(1.25, 20.06, 300)) == "preprocess 1.2 ms, network 20.1 ms, postprocess 300.0 ms"
