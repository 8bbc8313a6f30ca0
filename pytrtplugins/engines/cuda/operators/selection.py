"""Operators with data-dependent output sizes: NonMaxSuppression, Unique, Compress, NonZero; they run on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import Attributes, op


@op("NonMaxSuppression", host_inputs=(0, 1, 2, 3, 4), capturable=False)
def _suppress(
    xp: Any,
    attributes: Attributes,
    dims: Any,
    boxes: Any,
    scores: Any,
    most: Any = None,
    iou: Any = None,
    least: Any = None,
) -> Any:
    limit = 0 if most is None else int(np.asarray(most).reshape(()))
    overlap = np.float32(0 if iou is None else np.asarray(iou).reshape(()))
    lowest = -np.inf if least is None else float(np.asarray(least).reshape(()))
    corners = _corners(np.asarray(boxes, np.float32), bool(attributes.get("center_point_box")))
    found = [
        (image, kind, int(box))
        for image, kind in np.ndindex(scores.shape[:2])
        for box in _kept_indices(corners[image], scores[image, kind], limit, overlap, lowest)
    ]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: Any, centered: bool) -> Any:
    """Lower and upper corner of each box, along two axes."""
    if centered:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([middle - half, middle + half], axis=-1)
    one, other = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(one, other), np.maximum(one, other)], axis=-1)


def _kept_indices(corners: Any, scores: Any, limit: int, overlap: Any, lowest: float) -> list[Any]:
    """Indices of the boxes of one class that suppression keeps, the best first."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > lowest]
    areas, kept = np.prod(corners[:, 2:] - corners[:, :2], axis=1), list[Any]()
    while len(order) and len(kept) < limit:
        best, order = order[0], order[1:]
        kept.append(best)
        begin, end = (
            np.maximum(corners[best, :2], corners[order, :2]),
            np.minimum(corners[best, 2:], corners[order, 2:]),
        )
        shared = np.prod(np.maximum(end - begin, 0), axis=1)
        union = areas[best] + areas[order] - shared
        order = order[~((union > 0) & (shared > overlap * union))]
    return kept


@op("Unique", host_inputs=(0,), capturable=False)
def _unique(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    axis = attributes.get("axis")
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not attributes.get("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return [values, first, inverse, counts][: len(dims)]


@op("Compress", capturable=False)
def _compress(xp: Any, attributes: Attributes, dims: Any, x: Any, condition: Any) -> Any:
    kept = xp.nonzero(xp.asarray(condition))[0]
    axis = attributes.get("axis")
    return xp.take(x.reshape(-1) if axis is None else x, kept, axis=0 if axis is None else axis)


@op("NonZero", capturable=False)
def _nonzero(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    if x.ndim == 0:
        return xp.zeros((0, int(x != 0)), np.int64)
    return xp.stack(xp.nonzero(x)).astype(np.int64)
