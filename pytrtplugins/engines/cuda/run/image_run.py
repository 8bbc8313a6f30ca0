"""The launches from images to boxes, around a network's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....vision import Head, Placement
from ....vision.kernels import decode_into, head_priors, letterbox_batch_into, nms_into, top_k_into
from ...base.detection import Boxes, Pixels
from .execution import Execution
from .staging import Staging

__all__ = ["ImageRun"]


class ImageRun:
    """Buffers and launches for one number of images.

    Args:
        execution: The network's.
        input_name: Its input, float32 (N, 3, H, W).
        heads: Its region and yolo layers.
        mode: How images are fitted.
        max_detections: Largest number of boxes of an image.

    Attributes:
        execution: The network's.
        graph: What `queue` queues, captured; None: not yet, or not for this memory.
    """

    def __init__(
        self, execution: Execution, input_name: str, heads: Sequence[Head], mode: str, max_detections: int
    ) -> None:
        self.graph: Any = None  # goes before the execution, which keeps its kernels loaded
        self.execution, self._mode = execution, mode
        self._data = execution.input(input_name)
        n, _, height, width = self._data.shape
        self._size = width, height
        self._staging = Staging(execution.device, n)
        self._heads = []
        total, classes = 0, heads[0].classes
        for head in heads:
            values = execution.output(head.output)
            grid = values.shape[3], values.shape[2]
            priors = head_priors(head.anchors, head.unit(grid, self._size), head.mask)
            self._heads.append((head, values, priors, total))
            total += len(priors.array) * grid[0] * grid[1]
        device, xp = execution.device, execution.device.xp
        self._places = xp.zeros((n, total, 4), np.float32)
        self._scores = xp.zeros((n, classes, total), np.float32)
        self._found = xp.zeros((n, classes * total), np.uint64)
        max_detections = min(max_detections, classes * total)  # no more are there
        rows, totals = device.mapped_memory(n * max_detections * 24), device.mapped_memory(n * 4)
        self._rows, self._totals = rows[0].view(np.float32).reshape(n, max_detections, 6), totals[0].view(np.int32)
        self._written = rows[1].view(np.float32).reshape(n, max_detections, 6), totals[1].view(np.int32)

    def send(
        self, images: Sequence[Pixels], score_threshold: float, iou_threshold: float, stream: Any
    ) -> list[Placement]:
        """Queue the copies of images and thresholds to where the launches read them."""
        placements, new = self._staging.send(images, self._size, self._mode, score_threshold, iou_threshold, stream)
        if new:
            self.graph = None
        return placements

    def queue(self, stream: Any) -> None:
        """Queue everything else: letterbox, network, decoding, suppression, the best boxes."""
        staging, classes = self._staging, self._scores.shape[1]
        letterbox_batch_into(staging.bytes, staging.placements, self._data, stream=stream)
        self.execution.queue(stream)
        for head, values, priors, first in self._heads:
            decode_into(
                values, self._places, self._scores, priors, background=head.background, new_coords=head.new_coords,
                score_threshold=staging.score_threshold, first=first, stream=stream,
            )  # fmt: skip
        nms_into(
            self._places, self._scores, staging.iou_threshold, distance_power=self._heads[-1][0].distance_power,
            found=self._found, counts=staging.counts, stream=stream,
        )  # fmt: skip
        top_k_into(self._found, staging.counts, self._places, *self._written, classes, stream=stream)

    def boxes(self, placements: Sequence[Placement]) -> list[Boxes]:
        """What the last run found, once it is done."""
        found = []
        for rows, total, placement in zip(self._rows, self._totals.tolist(), placements, strict=False):
            chosen = rows[:total].copy()
            found.append(Boxes(chosen[:, 0].astype(np.int64), chosen[:, 1], chosen[:, 2:], placement))
        return found
