"""From the bytes of one photo of 768 x 576 to boxes: letterbox, network, decoding and suppression in one launch."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from pytrtplugins.engines.host_detection import HostDetection

from .clock import Clock
from .runners import build, network
from .subject import SIZE, Subject

pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

PHOTO = (576, 768, 3)
THRESHOLD = 0.7
HOST_ROUNDS = 50


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_photo_to_boxes(precision: str, subject: Subject, clock: Clock, benchmark) -> None:
    engine = build(subject, precision, 1)
    alone = network(engine, 1, clock)
    spots = np.random.default_rng(2).integers(0, 256, (PHOTO[0] // 48, PHOTO[1] // 48, 3), dtype=np.uint8)
    photos = [np.ascontiguousarray(spots.repeat(48, 0).repeat(48, 1))]
    with (
        engine.create_detection_context([subject.layer], SIZE) as detection,
        HostDetection(engine, [subject.layer], SIZE) as plain,
    ):
        (wanted,) = plain.detect(photos, score_threshold=THRESHOLD)
        (found,) = detection.detect(photos, score_threshold=THRESHOLD)
        assert len(wanted.scores), "a photo without boxes shows nothing"
        for name in ("classes", "scores", "places"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        spent: list[float] = []

        def detect() -> None:
            detection.detect(photos, score_threshold=THRESHOLD)
            spent.append(1e3 * detection.timings.network_ms)

        benchmark.pedantic(detect, rounds=HOST_ROUNDS, warmup_rounds=3)
        benchmark.extra_info.update(
            kind="photo", precision=precision.upper(), boxes=len(wanted.scores), network_us=clock.gpu(alone.queue).median,
            launch_us=statistics.median(spent[-HOST_ROUNDS:]),
        )  # fmt: skip
    alone.close()
