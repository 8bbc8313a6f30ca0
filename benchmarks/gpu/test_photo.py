"""From the bytes of one photo to boxes: letterbox, network, decoding and suppression in one launch."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from pytrtplugins.engines.host_detection import HostDetection

from .clock import Clock, wall
from .runners import Running, build, network
from .subject import SIZE, Subject

pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

SIZES = [(768, 576), SIZE]
CELL = 32
THRESHOLD = 0.7
HOST_ROUNDS = 50


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_photo_to_boxes(
    precision: str, size: tuple[int, int], subject: Subject, clock: Clock, peer: Running | None, benchmark
) -> None:
    engine = build(subject, precision, 1)
    alone = network(engine, 1, clock)
    spots = np.random.default_rng(2).integers(0, 256, (size[1] // CELL, size[0] // CELL, 3), dtype=np.uint8)
    photos = [np.ascontiguousarray(spots.repeat(CELL, 0).repeat(CELL, 1))]
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
        beside: list[float] = []

        def time_peer() -> None:
            if peer is not None:
                beside.append(wall(lambda: peer.run(subject.photos[:1])))

        def detect() -> None:
            detection.detect(photos, score_threshold=THRESHOLD)
            spent.append(1e3 * detection.timings.network_ms)

        benchmark.pedantic(detect, setup=time_peer, rounds=HOST_ROUNDS, warmup_rounds=3)
        rounds = benchmark.stats.stats.data
        ratios = [theirs / ours for ours, theirs in zip(rounds, beside[-HOST_ROUNDS:], strict=True)] if peer else []
        benchmark.extra_info.update(
            kind="photo", precision=precision.upper(), size=size, boxes=len(wanted.scores),
            network_us=clock.gpu(alone.queue).median, launch_us=statistics.median(spent[-HOST_ROUNDS:]),
            over_darknet=statistics.median(ratios) if ratios else None,
        )  # fmt: skip
    alone.close()
