"""Detection around any engine: everything but the network in NumPy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...utils.prefetch import map_ahead, threads_for_files
from ...vision import Letterboxed, letterbox, nms
from ...vision.device_images import DeviceImage
from .context import ContextMaker
from .detection import Boxes, DetectionContext, Pixels, Timings

__all__ = ["HostDetection"]

Floats = npt.NDArray[np.float32]


class HostDetection(DetectionContext):
    """Detection on the host: letterbox on all cores, decoding and suppression; the reference for other contexts."""

    engine: ContextMaker

    def _open(self) -> None:
        desc = self.engine.inputs[0]
        self._fixed = isinstance(desc.dims[0], int)
        self._input, self._batch = desc.name, desc.dims[0] if isinstance(desc.dims[0], int) else self.free_batch or 1
        self._context = self.engine.create_context()

    @property
    def batch(self) -> int:
        """The model's batch; where that is free what the context was made for, else 1."""
        return self._batch

    def _detect(self, images: Sequence[Pixels], score_threshold: float, iou_threshold: float) -> list[Boxes]:
        start = time.perf_counter()
        boxed = list(map_ahead(self._letterbox, images, threads=threads_for_files(), inline=lambda _: len(images) == 1))
        data = _stack(boxed, self._batch if self._fixed else len(boxed))
        ready = time.perf_counter()
        outputs = self._context.run({self._input: data})
        computed = time.perf_counter()
        boxes = self._boxes(outputs, boxed, score_threshold, iou_threshold)
        self.timings = Timings(*(1000 * np.diff([start, ready, computed, time.perf_counter()])).tolist())
        return boxes

    def _letterbox(self, image: Pixels) -> Letterboxed:
        return letterbox(image.download() if isinstance(image, DeviceImage) else image, self.size, self.mode)

    def _boxes(
        self, outputs: Mapping[str, Any], boxed: Sequence[Letterboxed], score_threshold: float, iou_threshold: float
    ) -> list[Boxes]:
        """Decode the outputs, and select boxes of each image."""
        parts = [head.decode(outputs[head.output], self.size) for head in self.heads]
        boxes = np.concatenate([part[0] for part in parts], axis=1)
        scores = np.concatenate([part[1] for part in parts], axis=1)
        scores = np.where(scores > np.float32(score_threshold), scores, np.float32(0))
        return [self._select(boxes[i], scores[i], image, iou_threshold) for i, image in enumerate(boxed)]

    def _select(self, boxes: Floats, scores: Floats, image: Letterboxed, iou_threshold: float) -> Boxes:
        """Suppress overlapping boxes of one image, and keep the best."""
        likely = scores.any(axis=1)
        power = self.heads[-1].distance_power
        boxes, scores = boxes[likely], nms(boxes[likely], scores[likely], iou_threshold, distance_power=power)
        rows, classes = scores.nonzero()
        best = np.argsort(-scores[rows, classes], kind="stable")[: self.max_detections]
        rows, classes = rows[best], classes[best]
        return Boxes(classes.astype(np.int64), scores[rows, classes], boxes[rows], image.placement)

    def _close(self) -> None:
        self._context.close()


def _stack(boxed: Sequence[Letterboxed], batch: int) -> Floats:
    """The images as one batch, filled up with grey where the engine's batch is larger."""
    if len(boxed) == batch == 1:
        return boxed[0].data[None]
    data: Floats = np.full((batch, *boxed[0].data.shape), 0.5, np.float32)
    for row, image in zip(data, boxed, strict=False):
        row[...] = image.data
    return data
