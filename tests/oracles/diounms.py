"""Suppression of AlexeyAB's fork of darknet in plain loops, statement by statement (59596d78, src/box.c diounms_sort, box_diou)."""

import numpy as np

F = np.float32


def box_iou(a, b):
    w = min(a[0] + a[2] / 2, b[0] + b[2] / 2) - max(a[0] - a[2] / 2, b[0] - b[2] / 2)
    h = min(a[1] + a[3] / 2, b[1] + b[3] / 2) - max(a[1] - a[3] / 2, b[1] - b[3] / 2)
    shared = F(0) if w < 0 or h < 0 else w * h
    union = a[2] * a[3] + b[2] * b[3] - shared
    return F(0) if shared == 0 or union == 0 else shared / union


def box_diou(a, b, power):
    w = max(a[0] + a[2] / 2, b[0] + b[2] / 2) - min(a[0] - a[2] / 2, b[0] - b[2] / 2)
    h = max(a[1] + a[3] / 2, b[1] + b[3] / 2) - min(a[1] - a[3] / 2, b[1] - b[3] / 2)
    c = w * w + h * h
    if c == 0:
        return box_iou(a, b)
    d = (a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1])
    return box_iou(a, b) - F(float(d / c) ** power)


def suppress(boxes, scores, threshold, nms_kind, beta):
    """Scores (B, classes) after ``diounms_sort``, or ``do_nms_sort`` for the default; of equal scores the earlier box first."""
    result, order = scores.copy(), list(range(len(boxes)))
    power = 0.6 if nms_kind == "greedynms" else float(F(beta))
    for k in range(scores.shape[1]):
        order.sort(key=lambda i: -result[i, k])
        for place, i in enumerate(order):
            if result[i, k] == 0:
                continue
            for j in order[place + 1 :]:
                plain = nms_kind == "default"
                if (box_iou(boxes[i], boxes[j]) if plain else box_diou(boxes[i], boxes[j], power)) > F(threshold):
                    result[j, k] = 0
    return result
