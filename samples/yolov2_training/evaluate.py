"""Detections of a batch, and VOC average precision at IoU 0.5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from pytrtplugins.errors import UsageError
from training.batch import NO_BOX, Pool

from .data import letterbox_images
from .loss import decode, iou
from .model import Model

__all__ = ["average_precision", "detect", "in_classes_of", "measure", "scores"]

MAX_DETECTIONS = 300  # detections kept of an image
LEAST_SCORE = 0.005
NMS_IOU = 0.45
_PART = 128  # images that are looked at together


@torch.no_grad()
def detect(network: nn.Module, inputs: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes in 0..1 of the input (B, D, 4), scores (B, D) and classes (B, D); suppressed ones have score 0.

    Runs in float32. NMS is greedy and per class, for all images at once.
    """
    out = network(inputs)
    boxes, objectness, classes, _ = decode(out, anchors)
    scores = (objectness.sigmoid()[..., None] * classes.softmax(-1)).flatten(1)
    score, index = scores.topk(min(MAX_DETECTIONS, scores.shape[1]), 1)
    label = index % classes.shape[2]
    box = boxes.gather(1, (index // classes.shape[2])[..., None].expand(-1, -1, 4))
    clash = (iou(box[:, :, None], box[:, None]) > NMS_IOU) & (label[:, :, None] == label[:, None])
    clash &= (score > LEAST_SCORE)[:, :, None] & torch.ones_like(clash[0]).triu(1)  # [higher score, lower score]
    keep = torch.ones_like(label, dtype=torch.bool)
    while not ((new := ~(clash & keep[:, :, None]).any(1)) == keep).all():  # until the greedy order is settled
        keep = new
    return box / out.shape[-1], torch.where(keep & (score > LEAST_SCORE), score, 0.0), label


def average_precision(network: nn.Module, inputs: Tensor, images: Pool, anchors: Tensor, classes: int) -> list[float]:
    """VOC AP at IoU 0.5 of each class: the area under the whole precision envelope.

    Args:
        network: In evaluation mode.
        inputs: The letterboxed images.
        images: Where their boxes are.
        anchors: (5, 2) in cells.
        classes: Number of classes.

    Returns:
        Of each class; NaN where the images have no box of it, which VOC and COCO leave out, too.
    """
    longest, kind = images.size.amax(1)[:, None, None], images.boxes[..., 0]
    truth = (images.boxes[..., 1:] + ((longest - images.size[:, None]) / 2).repeat(1, 1, 2)) / longest
    parts = []
    for chunk, boxes, kinds in zip(inputs.split(_PART), truth.split(_PART), kind.split(_PART), strict=True):
        box, score, label = detect(network, chunk, anchors)
        overlap = iou(box[:, :, None], boxes[:, None]) * (label[..., None] == kinds[:, None])
        parts.append((*overlap.max(2), score, label))
    fit, which, scores, labels = (torch.cat(part).cpu().numpy().ravel() for part in zip(*parts, strict=True))
    origin = np.repeat(np.arange(len(inputs)), len(scores) // len(inputs))
    result = []
    for c in range(classes):
        objects = int((kind == c).sum())
        if not objects:
            result.append(math.nan)
            continue
        chosen = np.flatnonzero((labels == c) & (scores > 0))
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
        hit, good = np.zeros(len(chosen)), np.flatnonzero(fit[chosen] > 0.5)
        claims = origin[chosen[good]] * truth.shape[1] + which[chosen[good]]
        hit[good[np.unique(claims, return_index=True)[1]]] = 1  # the first claim on a box counts
        found = hit.cumsum()
        recall, precision = found / objects, found / np.arange(1, len(chosen) + 1)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        result.append(float((np.diff(recall, prepend=0) * envelope).sum()))
    return result


def scores(model: Model, inputs: Tensor, images: Pool) -> dict[str, float]:
    """Measure a model, with names as in the log.

    Returns:
        mAP50, the mean over the classes of which the images have boxes; how many classes these are; and the AP of each of them.
    """
    values = average_precision(model.network, inputs, images, model.anchors, len(model.classes))
    present = {name: value for name, value in zip(model.classes, values, strict=True) if not math.isnan(value)}
    mean = sum(present.values()) / len(present) if present else math.nan
    return {"mAP50": mean, "classes": len(present)} | {f"AP50 {name}": value for name, value in present.items()}


def measure(model: Model, images: Pool, classes: Sequence[str], size: int) -> str:
    """Measure a model on photos with boxes of other classes or in another order, which are matched by their names.

    Args:
        model: On the device of the photos.
        images: The photos.
        classes: Names of their classes.
        size: Width and height of the network's input.

    Returns:
        Lines for a reader.

    Raises:
        UsageError: the photos have no box of a class that the model knows.
    """
    matched = in_classes_of(model, images, classes)
    figures = scores(model, letterbox_images(matched, size), matched)
    mean, count = figures.pop("mAP50"), figures.pop("classes")
    lines = [f"mAP50: {mean:.4f} (mean of {count} of {len(model.classes)} classes, at {size} x {size} pixels)"]
    lines += [f"{name}: {value:.4f}" for name, value in figures.items()]
    if absent := [name for name in model.classes if f"AP50 {name}" not in figures]:
        lines.append(f"the photos have no box of: {', '.join(absent)}")
    if unknown := [name for name in classes if name not in model.classes]:
        lines.append(f"the model does not know, and boxes of these count nowhere: {', '.join(unknown)}")
    return "\n".join(lines)


def in_classes_of(model: Model, images: Pool, classes: Sequence[str]) -> Pool:
    """Photos whose boxes have the model's numbers of classes, by their names; boxes of other classes are taken out.

    Raises:
        UsageError: no box is left.
    """
    numbers = [model.classes.index(name) if name in model.classes else NO_BOX for name in classes]
    table = torch.tensor([*numbers, NO_BOX], dtype=images.boxes.dtype, device=images.boxes.device)
    kind = table[images.boxes[..., :1].long()]  # the class of an unused row, -1, takes the last
    if not (kind >= 0).any():
        raise UsageError(
            f"--evaluate: the photos have no box of a class that the model knows.\nModel: {', '.join(model.classes[:20])}.\n"
            f"Data: {', '.join(classes[:20])}.\nDo: give photos with the same names of classes"
        )
    return replace(images, boxes=torch.cat([kind, images.boxes[..., 1:]], 2))
