"""Operators that read or write at computed places."""

from __future__ import annotations

import numpy as np

from ..draft import Draft, Unfit, is_float
from .table import builds


def _indices(draft: Draft, size: int, dims: tuple[int, ...]) -> np.ndarray:
    low = -size if draft.has_negative_axes() and draft.chance(0.6) else 0
    return draft.rng.integers(low, size, dims)


@builds("Gather")
def gather(draft: Draft) -> None:
    dims = draft.dims(1, 4, filled=True)
    axis = draft.attribute("axis", int(draft.rng.integers(-len(dims), len(dims))), default=0)
    draft.tensor(dims)
    draft.read(_indices(draft, dims[axis], draft.dims(0, 2)).astype(draft.type_of("Tind")))
    draft.exact = True


@builds("GatherElements")
def gather_elements(draft: Draft) -> None:
    dims = draft.dims(1, 4, filled=True)
    axis = draft.attribute("axis", int(draft.rng.integers(-len(dims), len(dims))), default=0)
    shape = list(dims)
    shape[axis] = draft.one(1, 2, 3, 6)
    draft.tensor(dims)
    draft.read(_indices(draft, dims[axis], tuple(shape)).astype(draft.type_of("Tind")))
    draft.exact = True


def _nd(draft: Draft, dims: tuple[int, ...], batch: int = 0) -> np.ndarray:
    depth = int(draft.rng.integers(1, len(dims) - batch + 1))
    outer = (*dims[:batch], *draft.dims(1, 2, filled=True))
    return np.stack([_indices(draft, dims[batch + axis], outer) for axis in range(depth)], -1)


@builds("GatherND")
def gather_nd(draft: Draft) -> None:
    dims = draft.dims(1, 4, filled=True)
    batch = draft.attribute("batch_dims", *range(len(dims)), default=0)
    draft.tensor(dims)
    draft.read(_nd(draft, dims, batch).astype(np.int64))
    draft.exact = True


def _reduction(draft: Draft) -> str:
    choices = ["none", "add", "mul", *(("max", "min") if draft.version >= 18 else ())]
    if draft.type_of("T") == np.bool_:
        choices = ["none"]
    return str(draft.attribute("reduction", *choices, default="none"))


@builds("ScatterElements", "Scatter")
def scatter_elements(draft: Draft) -> None:
    """Without a reduction no place is written twice."""
    dims = draft.dims(1, 3, filled=True)
    axis = draft.attribute("axis", int(draft.rng.integers(-len(dims), len(dims))), default=0)
    reduction = _reduction(draft)
    shape = [draft.one(size, max(1, size - 1)) for size in dims]
    if reduction == "none":
        whole = list(shape)
        whole[axis] = dims[axis]
        order = np.argsort(draft.rng.random(whole), axis)
        places = np.take(order, range(shape[axis]), axis)
    else:
        places = _indices(draft, dims[axis], tuple(shape))
    if draft.has_negative_axes() and draft.chance(0.3):
        places = places - dims[axis] * (places >= 0)
    kind = "wild" if is_float(draft.type_of("T")) and draft.chance(0.3) else "plain"
    draft.tensor(dims, kind=kind)
    draft.read(places.astype(draft.type_of("Tind")))
    draft.tensor(shape, kind=kind)
    draft.exact = reduction in ("none", "max", "min")
    draft.loose = 1.0 if draft.exact else 4.0  # sums of several numbers, rounded in between


@builds("ScatterND")
def scatter_nd(draft: Draft) -> None:
    dims = draft.dims(1, 4, filled=True)
    reduction = _reduction(draft)
    places = _nd(draft, dims)
    depth = places.shape[-1]
    if reduction == "none":
        flat = places.reshape(-1, depth) % np.array(dims[:depth])
        if len({tuple(row) for row in flat.tolist()}) < len(flat):
            raise Unfit("two values for one place")
    kind = "wild" if is_float(draft.type_of("T")) and draft.chance(0.3) else "plain"
    draft.tensor(dims, kind=kind)
    draft.read(places.astype(np.int64))
    draft.tensor((*places.shape[:-1], *dims[depth:]), kind=kind)
    draft.exact = reduction in ("none", "max", "min")
    draft.loose = 1.0 if draft.exact else 4.0  # sums of several numbers, rounded in between


@builds("TensorScatter")
def tensor_scatter(draft: Draft) -> None:
    n, length, d = draft.one(1, 2), draft.one(4, 5), draft.one(2, 3)
    four = draft.chance()
    axis = draft.attribute("axis", -2, default=-2)
    del axis
    new = draft.one(1, 2, 3)
    mode = draft.attribute("mode", "linear", "circular", default="linear")
    draft.tensor((n, 2, length, d) if four else (n, length, d))
    draft.tensor((n, 2, new, d) if four else (n, new, d))
    if draft.optional("write_indices"):
        draft.read(draft.rng.integers(0, length if mode == "circular" else length - new + 1, (n,)).astype(np.int64))
    draft.exact = True


@builds("NonMaxSuppression")
def nms(draft: Draft) -> None:
    """Boxes that overlap a little, a lot and exactly at the threshold; all limits as inputs that may be left out."""
    count, n, classes = draft.one(1, 4, 6), draft.one(1, 2), draft.one(1, 2)
    center = draft.attribute("center_point_box", 0, 1, default=0)
    corner = draft.rng.uniform(0, 2, (n, count, 2))
    size = draft.rng.uniform(0.5, 2, (n, count, 2))
    boxes = np.concatenate([corner, size if center else corner + size], -1).astype(np.float32)
    if not center and draft.chance(0.3):
        boxes = boxes[..., [2, 3, 0, 1]]
    draft.read(boxes)
    scores = draft.rng.random((n, classes, count)).astype(np.float32)
    draft.read(scores)
    limits = (
        ("max_output_boxes_per_class", lambda: np.array(draft.one(1, 2, 10), np.int64)),
        ("iou_threshold", lambda: np.array(draft.one(0.0, 0.3, 0.6), np.float32)),
        ("score_threshold", lambda: np.array(draft.one(0.1, 0.5, -1.0), np.float32)),
    )
    for name, value in limits:
        if draft.optional(name, 0.75):
            draft.read(value().reshape(draft.one((1,), (1,), ())))
    draft.exact = True
