"""Detections of a batch, and VOC average precision at IoU 0.5."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from training.batch import Pool

from .loss import decode, iou
from .model import Model

__all__ = ["average_precision", "detect", "scores"]

MAX_DETECTIONS = 300  # detections kept of an image
LEAST_SCORE = 0.005
NMS_IOU = 0.45


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
    """
    parts = [detect(network, chunk, anchors) for chunk in inputs.split(128)]
    box, score, label = (torch.cat(part) for part in zip(*parts, strict=True))
    longest, kind = images.size.amax(1)[:, None, None], images.boxes[..., 0]
    truth = (images.boxes[..., 1:] + ((longest - images.size[:, None]) / 2).repeat(1, 1, 2)) / longest
    overlap = iou(box[:, :, None], truth[:, None]) * (label[..., None] == kind[:, None])
    fit, which = (t.cpu().numpy().ravel() for t in overlap.max(2))
    origin = np.repeat(np.arange(len(inputs)), box.shape[1])
    scores, labels = score.cpu().numpy().ravel(), label.cpu().numpy().ravel()
    result = []
    for c in range(classes):
        chosen = np.flatnonzero((labels == c) & (scores > 0))
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
        hit, good = np.zeros(len(chosen)), np.flatnonzero(fit[chosen] > 0.5)
        claims = origin[chosen[good]] * truth.shape[1] + which[chosen[good]]
        hit[good[np.unique(claims, return_index=True)[1]]] = 1  # the first claim on a box counts
        found = hit.cumsum()
        recall, precision = found / max(1, int((kind == c).sum())), found / np.arange(1, len(chosen) + 1)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        result.append(float((np.diff(recall, prepend=0) * envelope).sum()))
    return result


def scores(model: Model, inputs: Tensor, images: Pool) -> dict[str, float]:
    """MAP50 and the AP of each class, with names as in the log."""
    found = average_precision(model.network, inputs, images, model.anchors, len(model.classes))
    named = {f"AP50 {name}": value for name, value in zip(model.classes, found, strict=True)}
    return {"mAP50": sum(found) / len(found)} | named
