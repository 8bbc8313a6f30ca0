"""Darknet's region decoding, with a newer assignment and newer losses than darknet's.

What a trained network computes stays darknet's: x = (column + sigmoid(tx)) / W, w = anchor * exp(tw) / W, score =
sigmoid(to) * softmax(class). Only the targets differ, and they exist in training alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .network import ANCHORS

__all__ = ["Predictions", "decode", "iou", "region_loss"]

BOX_WEIGHT = 5.0
ALIGNED = 8  # predictions that learn from one box
LARGEST_EXPONENT = 5.0  # keeps exp(tw) finite in the first steps


class Predictions(NamedTuple):
    """P = anchors x cells predictions an image.

    Fields:
        boxes: (B, P, 4) x1, y1, x2, y2 in cells.
        objectness: (B, P) logits.
        classes: (B, P, classes) logits.
        cells: (P, 2) column and row of the predicting cell.
    """

    boxes: Tensor
    objectness: Tensor
    classes: Tensor
    cells: Tensor


def decode(out: Tensor, anchors: Tensor) -> Predictions:
    """Read the network's output as the region layer does."""
    n, _, h, w = out.shape
    p = out.float().view(n, ANCHORS, -1, h, w).permute(0, 3, 4, 1, 2)
    y, x = torch.meshgrid(torch.arange(h, device=out.device), torch.arange(w, device=out.device), indexing="ij")
    cells = torch.stack([x, y], 2)[:, :, None].expand(-1, -1, ANCHORS, -1).float()
    centre, half = p[..., :2].sigmoid() + cells, p[..., 2:4].clamp(max=LARGEST_EXPONENT).exp() * anchors / 2
    boxes = torch.cat([centre - half, centre + half], -1)
    return Predictions(boxes.flatten(1, 3), p[..., 4].flatten(1), p[..., 5:].flatten(1, 3), cells.flatten(0, 2))


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Overlap over union of boxes x1, y1, x2, y2 in the last axis; the other axes broadcast."""
    overlap = _area((torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0))
    area_a, area_b = _area(a[..., 2:] - a[..., :2]), _area(b[..., 2:] - b[..., :2])
    return overlap / (area_a + area_b - overlap + 1e-7)


def _area(size: Tensor) -> Tensor:
    return (
        size[..., 0] * size[..., 1]
    )  # the gradient of prod looks for zeros on the host, for which the GPU would have to be waited for


def _complete_iou(a: Tensor, b: Tensor) -> Tensor:
    """CIoU: IoU less the centres' distance and the aspect ratios' difference (Zheng et al., 2020)."""
    overlap, size_a, size_b = iou(a, b), a[..., 2:] - a[..., :2], b[..., 2:] - b[..., :2]
    hull = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    distance = (a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]).square().sum(-1) / 4
    angle_a, angle_b = (torch.atan(s[..., 0] / (s[..., 1] + 1e-7)) for s in (size_a, size_b))
    v = 4 / math.pi**2 * (angle_a - angle_b) ** 2
    return overlap - distance / (hull.square().sum(-1) + 1e-7) - v * (v / (1 - overlap + v + 1e-7)).detach()


@torch.no_grad()
def _assign(found: Predictions, truth: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Task-aligned assignment (Feng et al., 2021).

    Every box takes the predictions with the best score^0.5 * IoU^6 among the cells that it covers; a prediction that
    several boxes want goes to the one that it fits best.

    Returns:
        Each prediction's box (B, P), and its target objectness (B, P), 0 where it has none.
    """
    box, label = truth[:, None, :, :4], truth[..., 4].clamp(min=0).long()
    overlap = iou(found.boxes[:, :, None], box)
    named = found.classes.softmax(-1).gather(2, label[:, None].expand(-1, found.classes.shape[1], -1))
    score = found.objectness.sigmoid()[..., None] * named
    middle, centre = found.cells[None, :, None] + 0.5, (box[..., :2] + box[..., 2:]) / 2
    covers = ((middle > box[..., :2]) & (middle < box[..., 2:])).all(-1) | ((middle - centre).abs() <= 0.5).all(-1)
    fit = score.clamp(min=1e-4).sqrt() * overlap.clamp(min=1e-3) ** 6 * (covers & valid[:, None])
    fit = torch.where(fit >= fit.topk(min(ALIGNED, fit.shape[1]), 1).values[:, -1:], fit, 0.0)
    best = fit.max(2)
    mine = (best.indices[..., None] == torch.arange(fit.shape[2], device=fit.device)) & (best.values > 0)[..., None]
    fit, reach = torch.where(mine, fit, 0.0), torch.where(mine, overlap, 0.0).amax(1, keepdim=True)
    return best.indices, (fit / (fit.amax(1, keepdim=True) + 1e-30) * reach).amax(2)


def _at_least_one(total: Tensor) -> Tensor:
    return total.clamp(min=1)


def region_loss(
    out: Tensor,
    truth: Tensor,
    valid: Tensor,
    anchors: Tensor,
    smoothing: float = 0.0,
    per_rank: Callable[[Tensor], Tensor] = _at_least_one,
) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and its parts (box, objectness, class) detached.

    Args:
        out: (B, anchors * (5 + classes), H, W), the network's raw output.
        truth: (B, M, 5) boxes x1, y1, x2, y2 in cells, and class.
        valid: (B, M) which of them count.
        anchors: (5, 2) in cells.
        smoothing: Label smoothing of the class loss.
        per_rank: What the sums are divided by, as a function of the targets' sum: where several ranks share a batch, their part of all
            ranks' sum.
    """
    found = decode(out, anchors)
    owner, target = _assign(found, truth, valid)
    total = per_rank(target.sum())
    own_box = truth[..., :4].gather(1, owner[..., None].expand(-1, -1, 4))
    own_label = truth[..., 4].clamp(min=0).long().gather(1, owner).flatten()
    box = ((1 - _complete_iou(found.boxes, own_box)) * target).sum() / total
    objectness = functional.binary_cross_entropy_with_logits(found.objectness, target, reduction="sum") / total
    logits = found.classes.flatten(0, 1)
    named = functional.cross_entropy(logits, own_label, reduction="none", label_smoothing=smoothing)
    kind = (named * target.flatten()).sum() / total
    return BOX_WEIGHT * box + objectness + kind, torch.stack([box, objectness, kind]).detach()
