"""Normalization operators; sums in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import Attributes, op


@op("BatchNormalization")
def _batch_norm(xp: Any, attributes: Attributes, dims: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    factor = xp.asarray(scale) / xp.sqrt(xp.asarray(var) + np.float32(attributes.get("epsilon", 1e-5)))
    offset = xp.asarray(bias) - xp.asarray(mean) * factor
    if not attributes.get("spatial", 1):  # before opset 9: numbers for each place of an image
        return x * factor.reshape(x.shape[1:]) + offset.reshape(x.shape[1:])
    return x * _channels(factor, x) + _channels(offset, x)


@op("InstanceNormalization")
def _instance_norm(xp: Any, attributes: Attributes, dims: Any, x: Any, scale: Any, bias: Any) -> Any:
    normed = _normed(xp, x, tuple(range(2, x.ndim)), attributes.get("epsilon", 1e-5))[0]
    return normed * _channels(scale, x) + _channels(bias, x)


@op("GroupNormalization")
def _group_norm(xp: Any, attributes: Attributes, dims: Any, x: Any, scale: Any, bias: Any) -> Any:
    groups = attributes["num_groups"]
    normed = _normed(xp, x.reshape(x.shape[0], groups, -1), (2,), attributes.get("epsilon", 1e-5))[0].reshape(x.shape)
    each = x.shape[1] // xp.asarray(scale).size  # before opset 21 there is one number for each group
    factor, offset = (xp.repeat(xp.asarray(values), each) for values in (scale, bias))
    return normed * _channels(factor, x) + _channels(offset, x)


@op("LayerNormalization")
def _layer_norm(xp: Any, attributes: Attributes, dims: Any, x: Any, scale: Any, bias: Any = None) -> Any:
    axes = tuple(range(attributes.get("axis", -1) % x.ndim, x.ndim))
    normed, mean, inverse = _normed(xp, x, axes, attributes.get("epsilon", 1e-5))
    y = normed * scale
    return [y if bias is None else y + bias, mean, inverse][: len(dims)]


@op("RMSNormalization")
def _rms_norm(xp: Any, attributes: Attributes, dims: Any, x: Any, scale: Any) -> Any:
    axes = tuple(range(attributes.get("axis", -1) % x.ndim, x.ndim))
    return x / xp.sqrt((x * x).mean(axis=axes, keepdims=True) + np.float32(attributes.get("epsilon", 1e-5))) * scale


@op("MeanVarianceNormalization")
def _mean_variance(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    axes = tuple(attributes.get("axes", (0, 2, 3)))
    centered = x - x.mean(axis=axes, keepdims=True)
    return centered / (xp.sqrt((centered * centered).mean(axis=axes, keepdims=True)) + np.float32(1e-9))


@op("LpNormalization")
def _lp_norm(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    axis = attributes.get("axis", -1)
    norm = xp.abs(x).sum(axis=axis, keepdims=True)
    if attributes.get("p", 2) == 2:
        norm = xp.sqrt((x * x).sum(axis=axis, keepdims=True))
    return xp.where(norm == 0, xp.zeros_like(x), x / xp.where(norm == 0, xp.ones_like(norm), norm))


@op("LRN")
def _lrn(xp: Any, attributes: Attributes, dims: Any, x: Any) -> Any:
    size, c = attributes["size"], x.shape[1]
    below, above = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = xp.pad(x * x, [(0, 0), (below, above), *[(0, 0)] * (x.ndim - 2)])
    sums = sum(squares[:, first : first + c] for first in range(size))
    alpha, beta, bias = (
        np.float32(attributes.get(name, d)) for name, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    return x / (bias + alpha / np.float32(size) * sums) ** beta


def _normed(xp: Any, x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """Values of mean 0 and variance 1; the mean, and one over the deviation."""
    mean = x.mean(axis=axes, keepdims=True)
    centered = x - mean
    inverse = 1 / xp.sqrt((centered * centered).mean(axis=axes, keepdims=True) + np.float32(epsilon))
    return centered * inverse, mean, inverse


def _channels(values: Any, x: Any) -> Any:
    return values.reshape(-1, *[1] * (x.ndim - 2))
