"""MXNet's operators as plain loops over NumPy arrays, after the formulas in its source."""

import itertools
import math

import numpy as np


def convolution(x, weight, bias=None, stride=(1, 1), pad=(0, 0), dilate=(1, 1), group=1):
    """src/operator/nn/convolution.cc."""
    n = len(x)
    filters, per, kh, kw = weight.shape
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
    h, w = ((x.shape[2 + i] - dilate[i] * ((kh, kw)[i] - 1) - 1) // stride[i] + 1 for i in (0, 1))
    y = np.zeros((n, filters, h, w))
    for f, i, j in itertools.product(range(filters), range(h), range(w)):
        start = f // (filters // group) * per
        rows = i * stride[0] + np.arange(kh) * dilate[0]
        columns = j * stride[1] + np.arange(kw) * dilate[1]
        window = x[:, start : start + per][:, :, rows][..., columns]
        y[:, f, i, j] = (window * weight[f]).sum((1, 2, 3)) + (0 if bias is None else bias[f])
    return y


def along(values, x):
    """A number for each channel, in the form in which it multiplies."""
    return np.asarray(values).reshape(-1, *(1,) * (x.ndim - 2))


def batch_norm(x, gamma, beta, mean, variance, eps=1e-3, fix_gamma=True):
    """src/operator/nn/batch_norm.cc, with the stored statistics."""
    scale = np.ones_like(gamma) if fix_gamma else gamma
    return (x - along(mean, x)) / np.sqrt(along(variance, x) + eps) * along(scale, x) + along(beta, x)


def prelu(x, slope):
    """src/operator/leaky_relu-inl.h."""
    return np.where(x > 0, x, x * along(slope, x))


def pooling(x, kernel, stride, pad=(0, 0), kind="max", full=False, counts_border=True):
    """pool_max_2d_nchw_cpu and pool_sum_2d_nchw_cpu of src/operator/nn/pool.h; the count of windows of pooling.cc."""
    n, c, height, width = x.shape
    round_up = math.ceil if full else math.floor
    sizes = [1 + round_up((s + 2 * p - k) / t) for s, p, k, t in zip((height, width), pad, kernel, stride, strict=True)]
    y = np.zeros((n, c, *sizes))
    for i, j in itertools.product(*map(range, sizes)):
        top, left = i * stride[0] - pad[0], j * stride[1] - pad[1]
        bottom, right = min(top + kernel[0], height + pad[0]), min(left + kernel[1], width + pad[1])
        count = (bottom - top) * (right - left)
        top, left, bottom, right = max(top, 0), max(left, 0), min(bottom, height), min(right, width)
        if not counts_border:
            count = (bottom - top) * (right - left)
        window = x[:, :, top:bottom, left:right]
        y[:, :, i, j] = window.max((2, 3)) if kind == "max" else window.sum((2, 3)) / count
    return y
