"""Non-maximum suppression: of overlapping boxes of one class, the box with the highest score is kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import UsageError

__all__ = ["nms"]

Floats = npt.NDArray[np.float32]


def nms(
    boxes_cxcywh: Floats, scores: Floats, iou_threshold: float = 0.45, *, distance_power: float | None = None
) -> Floats:
    """Suppress overlapping boxes, class by class, exactly as darknet's ``do_nms_sort`` does, or as its fork's ``diounms_sort``.

    OpenCV's NMSBoxes is not used: it compares in another precision, and breaks ties in another order.

    Args:
        boxes_cxcywh: (B, 4) centre x, centre y, width, height; any unit, the same for both axes of all boxes or not.
        scores: (B, classes); 0 where a box is not of the class.
        iou_threshold: Overlap (intersection over union) above which the box with the lower score is suppressed, 0..1.
        distance_power: With it the overlap is lessened by (squared distance of the centres / squared diagonal of the smallest box
            around both) to this power, so that boxes beside each other stay (DIoU); None: the plain overlap.

    Returns:
        The scores, with 0 for what was suppressed. Of equal scores the earlier box wins.

    Raises:
        UsageError: the shapes do not fit each other, or the threshold is outside 0..1, or the power is below 0.

    Source:
        pjreddie/darknet f6afaabc, src/box.c do_nms_sort and box_iou; AlexeyAB/darknet 59596d78, src/box.c diounms_sort, box_diou
        and box_diounms.
    """
    boxes = np.asarray(boxes_cxcywh, np.float32)
    result: Floats = np.array(scores, np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or result.ndim != 2 or len(boxes) != len(result):
        raise UsageError(f"nms: expected boxes (B, 4) and scores (B, classes), found {boxes.shape} and {result.shape}.")
    if not 0 <= iou_threshold <= 1:
        raise UsageError(f"nms: iou_threshold: expected a number from 0 to 1, found {iou_threshold}.")
    if distance_power is not None and not distance_power >= 0:
        raise UsageError(f"nms: distance_power: expected a number of at least 0, found {distance_power}.")
    order = np.arange(len(boxes))
    for k in range(result.shape[1]):
        if not result[:, k].any():
            continue
        order = order[np.argsort(-result[order, k], kind="stable")]  # darknet sorts on from the previous class's order
        candidates = order[: np.count_nonzero(result[:, k])]
        while len(candidates) > 1:
            first, rest = candidates[0], candidates[1:]
            is_suppressed = _overlap(boxes[first], boxes[rest], distance_power) > np.float32(iou_threshold)
            result[rest[is_suppressed], k] = 0
            candidates = rest[~is_suppressed]
    return result


def _overlap(box: Floats, others: Floats, distance_power: float | None) -> Floats:
    """Return IoU of one box with others, minus the DIoU distance term, in float32 and darknet's order of operations."""
    half, halves = box[2:] / 2, others[:, 2:] / 2
    low, lows, high, highs = box[:2] - half, others[:, :2] - halves, box[:2] + half, others[:, :2] + halves
    sides = np.minimum(high, highs) - np.maximum(low, lows)
    intersection = np.where((sides < 0).any(1), np.float32(0), sides[:, 0] * sides[:, 1])
    union = box[2] * box[3] + others[:, 2] * others[:, 3] - intersection
    with np.errstate(invalid="ignore", divide="ignore"):
        overlap: Floats = intersection / union
        if distance_power is None:
            return overlap
        enclosing, centre_offset = np.maximum(high, highs) - np.minimum(low, lows), box[:2] - others[:, :2]
        diagonal = enclosing[:, 0] * enclosing[:, 0] + enclosing[:, 1] * enclosing[:, 1]
        distance = centre_offset[:, 0] * centre_offset[:, 0] + centre_offset[:, 1] * centre_offset[:, 1]
        term = ((distance / diagonal).astype(np.float64) ** distance_power).astype(
            np.float32
        )  # darknet's pow is double's
        return np.where(diagonal == 0, overlap, overlap - term)
