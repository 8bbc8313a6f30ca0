"""Non-maximum suppression: of overlapping boxes of one class, the box with the highest score is kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import UsageError

__all__ = ["nms"]

Floats = npt.NDArray[np.float32]


def nms(boxes_cxcywh: Floats, scores: Floats, iou_threshold: float = 0.45) -> Floats:
    """Suppress overlapping boxes, class by class, exactly as darknet's ``do_nms_sort`` does.

    OpenCV's NMSBoxes is not used: it compares in another precision, and breaks ties in another order.

    Args:
        boxes_cxcywh: (B, 4) centre x, centre y, width, height; any unit, the same for both axes of all boxes or not.
        scores: (B, classes); 0 where a box is not of the class.
        iou_threshold: Overlap (intersection over union) above which the box with the lower score is suppressed, 0..1.

    Returns:
        The scores, with 0 for what was suppressed. Of equal scores the earlier box wins.

    Raises:
        UsageError: the shapes do not fit each other, or the threshold is outside 0..1.

    Source:
        pjreddie/darknet f6afaabc, src/box.c do_nms_sort and box_iou.
    """
    boxes = np.asarray(boxes_cxcywh, np.float32)
    result: Floats = np.array(scores, np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or result.ndim != 2 or len(boxes) != len(result):
        raise UsageError(f"nms: expected boxes (B, 4) and scores (B, classes), found {boxes.shape} and {result.shape}.")
    if not 0 <= iou_threshold <= 1:
        raise UsageError(f"nms: iou_threshold: expected a number from 0 to 1, found {iou_threshold}.")
    order = np.arange(len(boxes))
    for k in range(result.shape[1]):
        if not result[:, k].any():
            continue
        order = order[np.argsort(-result[order, k], kind="stable")]  # darknet sorts on from the previous class's order
        candidates = order[: np.count_nonzero(result[:, k])]
        while len(candidates) > 1:
            first, rest = candidates[0], candidates[1:]
            clash = _iou(boxes[first], boxes[rest]) > np.float32(iou_threshold)
            result[rest[clash], k] = 0
            candidates = rest[~clash]
    return result


def _iou(box: Floats, others: Floats) -> Floats:
    """Intersection over union of one box with others, in float32 and darknet's order of operations."""
    half, halves = box[2:] / 2, others[:, 2:] / 2
    low = np.maximum(box[:2] - half, others[:, :2] - halves)
    high = np.minimum(box[:2] + half, others[:, :2] + halves)
    side = high - low
    shared = np.where((side < 0).any(1), np.float32(0), side[:, 0] * side[:, 1])
    union = box[2] * box[3] + others[:, 2] * others[:, 3] - shared
    with np.errstate(invalid="ignore", divide="ignore"):
        overlap: Floats = shared / union
    return overlap
