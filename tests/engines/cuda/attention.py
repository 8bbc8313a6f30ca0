"""Attention in float64."""

import numpy as np


def attended(qkv, scale, bias=None, zero=False):
    """softmax(scale · q kᵀ + bias) v; with ``zero``, rows of which nothing is left give zeros."""
    q, k, v = (np.asarray(array, np.float64) for array in qkv)
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if bias is not None:
        scores = scores + bias.astype(np.float64)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
    return (np.where(np.isnan(weights), 0, weights) if zero else weights) @ v
