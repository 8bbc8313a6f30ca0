"""Non-maximum suppression of a batch, class by class, with outputs of a fixed size."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.errors import FieldError
from pytrtplugins.tensor import DType, check_equal, check_rank


def kernel(name):
    return ptp.CudaKernel.from_file("batched_nms.cu", name)


@ptp.plugin(namespace="wanted")
class BatchedNms(ptp.Plugin):
    """Of boxes of one class that overlap, the one with the highest score stays; the best `max_outputs` of each image.

    boxes: [N, B, 4], centre x, centre y, width, height; scores: [N, C, B]. Outputs: the number of boxes [N, 1], boxes
    [N, max_outputs, 4], scores and classes [N, max_outputs]; behind the number are boxes and scores of 0, and class -1.
    """

    max_outputs: int = 4
    iou_threshold: float = 0.5
    score_threshold: float = 0.25
    clear: ClassVar[ptp.CudaKernel] = kernel("clear")
    rank: ClassVar[ptp.CudaKernel] = kernel("rank")
    select: ClassVar[ptp.CudaKernel] = kernel("select")

    def validate(self):
        if self.max_outputs < 1:
            raise FieldError(f"BatchedNms.max_outputs: expected at least 1, found {self.max_outputs}")

    def output_dims(self, boxes, scores):
        check_rank(boxes, 3, "BatchedNms: boxes")
        check_rank(scores, 3, "BatchedNms: scores")
        check_equal(boxes[2], 4, "BatchedNms: last axis of boxes")
        check_equal(scores[0], boxes[0], "BatchedNms: batch of scores")
        check_equal(scores[2], boxes[1], "BatchedNms: last axis of scores")
        n, most = boxes[0], self.max_outputs
        return (n, 1), (n, most, 4), (n, most), (n, most)

    def output_dtypes(self, boxes, scores):
        return DType.INT32, boxes, boxes, DType.INT32

    def supports_format(self, position, descs):
        desc = descs[position]
        if position in (2, 5):  # the numbers of boxes, and the classes
            return desc.layout == "linear" and desc.dtype == DType.INT32
        accepted = (DType.FLOAT32, DType.FLOAT16)
        return desc.layout == "linear" and desc.dtype in accepted and desc.dtype == descs[0].dtype

    def compute(self, boxes, scores):
        n, most = len(boxes), self.max_outputs
        numbers, classes = np.zeros((n, 1), np.int32), np.full((n, most), -1, np.int32)
        out_boxes, out_scores = np.zeros((n, most, 4), boxes.dtype), np.zeros((n, most), boxes.dtype)
        for image in range(n):
            for k, (kind, box) in enumerate(self._kept(boxes[image].astype(np.float32), scores[image])):
                numbers[image], classes[image, k] = k + 1, kind
                out_boxes[image, k], out_scores[image, k] = boxes[image, box], scores[image, kind, box]
        return numbers, out_boxes, out_scores, classes

    def _kept(self, boxes, scores):
        """Class and box of each result of one image, the best first."""
        values = scores.reshape(-1)
        kept: list[tuple[int, int]] = []
        for entry in np.argsort(-values, kind="stable"):
            kind, box = divmod(int(entry), len(boxes))
            if len(kept) == self.max_outputs or not values[entry] > np.float32(self.score_threshold):
                break
            if not any(self._overlap(boxes[other], boxes[box]) for same, other in kept if same == kind):
                kept.append((kind, box))
        return kept

    def _overlap(self, a, b):
        low, high = (np.stack([one[:2] - one[2:] / 2, one[:2] + one[2:] / 2]) for one in (a, b))
        width, height = np.maximum(np.minimum(low[1], high[1]) - np.maximum(low[0], high[0]), 0)
        shared = width * height
        return shared > np.float32(self.iou_threshold) * (a[2] * a[3] + b[2] * b[3] - shared)

    def workspace_size(self, inputs, outputs):
        n, c, count = inputs[1].dims
        return 4 * n * (1 + c * count + self.max_outputs)

    def enqueue(self, inputs, outputs, workspace, stream):
        (boxes, scores), (numbers, *results) = inputs, outputs
        n, c, count = scores.shape
        if not n:
            return  # and there is no workspace
        entries, most = c * count, self.max_outputs
        memory = workspace.view(np.int32)
        counts, order, kept = memory[:n], memory[n : n + n * entries], memory[n + n * entries :]
        self.clear.launch(counts, n, threads=n, stream=stream)
        self.rank.launch(
            scores, order, counts, scores.size, entries, self.score_threshold, threads=scores.size, stream=stream
        )
        self.select.launch(
            boxes, scores, order, counts, kept, numbers, *results, count, entries, most, self.iou_threshold,
            threads=64 * n, block=64, stream=stream,
        )  # fmt: skip
