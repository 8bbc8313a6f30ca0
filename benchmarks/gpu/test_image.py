"""From the bytes of one image to boxes: letterbox, network, decoding and suppression; darknet from the same bytes beside it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytrtplugins.engines import Boxes
from pytrtplugins.engines.base.host_detection import HostDetection

from .clock import CALLS, TURNS, Clock, in_turns
from .ours import network, whole
from .running import pinned_copy
from .subject import SIZE, Subject

if TYPE_CHECKING:
    from tests.oracles.libdarknet import DarknetNetwork

pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

SIZES = [(768, 576), SIZE]
CELL = 32
THRESHOLD, OVERLAP = 0.7, 0.45
NEAR = 0.02


@pytest.mark.parametrize("memory", ["ordinary", "pinned"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{}x{}".format(*size))
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_image_to_boxes(
    precision: str,
    size: tuple[int, int],
    memory: str,
    subject: Subject,
    clock: Clock,
    darknet: DarknetNetwork | None,
    benchmark,
) -> None:
    engine = whole(subject, precision, 1)
    spots = np.random.default_rng(2).integers(0, 256, (size[1] // CELL, size[0] // CELL, 3), dtype=np.uint8)
    image = np.ascontiguousarray(spots.repeat(CELL, 0).repeat(CELL, 1))
    images = [pinned_copy(image) if memory == "pinned" else image]
    heads, x = [subject.layer], subject.images[:1]
    with engine.create_detection_context(heads, SIZE) as detection, HostDetection(engine, heads, SIZE) as plain:
        (wanted,) = plain.detect(images, score_threshold=THRESHOLD, iou_threshold=OVERLAP)
        (found,) = detection.detect(images, score_threshold=THRESHOLD, iou_threshold=OVERLAP)
        assert len(wanted.scores), "an image without boxes shows nothing"
        for name in ("classes", "scores", "boxes_cxcywh"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        peers = {}
        if darknet is not None:
            with engine.create_detection_context(heads, SIZE, mode="darknet") as as_darknet:
                (boxes,) = as_darknet.detect(images, score_threshold=THRESHOLD, iou_threshold=OVERLAP)
            rows = darknet.image_rows(images[0], THRESHOLD, OVERLAP)
            assert precision == "int8" or missing(rows, boxes) <= len(rows) / 10, "darknet finds other boxes"
            peers["darknet"] = lambda: darknet.image_rows(images[0], THRESHOLD, OVERLAP)
            peers["predict"] = lambda: darknet.predict(x, quiet=False)
        spent: list[float] = []

        def detect() -> None:
            detection.detect(images, score_threshold=THRESHOLD, iou_threshold=OVERLAP)
            spent.append(1e3 * detection.timings.network_ms)

        beside = in_turns(benchmark, detect, peers)
        alone = network(engine, 1, clock)
        assert alone.queue is not None
        benchmark.extra_info.update(
            kind="image", precision=precision.upper(), size=size, pinned=memory == "pinned", boxes=len(wanted.scores),
            network_us=clock.gpu(alone.queue).median, launch_us=statistics.median(spent[-CALLS * TURNS :]),
            **{f"{name}_us": times.median for name, times in beside.items()},
            **{f"over_{name}": times.ratio for name, times in beside.items()},
        )  # fmt: skip
        alone.close()


def missing(rows: Sequence[np.ndarray] | np.ndarray, boxes: Boxes) -> int:
    """How many of darknet's rows, those with a score by a hair over the threshold aside, have no box of their class like them."""
    corners = boxes.placement.to_image(boxes.boxes_cxcywh)
    edges = [*boxes.placement.original_size] * 2
    count = 0
    for kind, score, *corner in (row for row in rows if row[1] > THRESHOLD + NEAR):
        like = (boxes.classes == kind) & (np.abs(boxes.scores - score) < NEAR)
        count += not (like & (np.abs(corners - np.clip(corner, 0, edges)) < NEAR * max(edges)).all(1)).any()
    return count
