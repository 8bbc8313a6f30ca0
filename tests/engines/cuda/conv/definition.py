"""What convolutions of random arrays must give, by the definition in float64, with all that follows the sum."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from pytrtplugins.engines.cuda.conv.packing import pack_biases
from pytrtplugins.engines.cuda.conv.stem_kernel import StemShape, pack_stem
from pytrtplugins.engines.cuda.device.elements import decoded, encoded, stored
from pytrtplugins.layers import Reorg
from pytrtplugins.tensor import DType
from tests.engines.cuda.conv.shapes import FP8, HALF, INT8, convolution, square
from tests.measures import relative

BOUNDS = {6: (0.2, 0.4), 7: (-0.5, 1.25)}
STEP = 0.05
"""Of codes that a kernel writes: it finds sums divided by it, and activates what they stand for."""


GATES = {
    1: lambda y: 1 / (1 + np.exp(-y)),
    2: lambda y: y / (1 + np.exp(-y)),
    3: lambda y: y / 2 * (1 + np.vectorize(math.erf)(y / np.sqrt(2))),
    4: lambda y: y / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))),
    5: lambda y: y * np.clip(y / 6 + 0.5, 0, 1),
    6: lambda y: np.clip(y * BOUNDS[6][0] + BOUNDS[6][1], 0, 1),
    7: lambda y: np.clip(y, *BOUNDS[7]),
    9: lambda y: np.maximum(y, 0),
}


def slopes_of(shape):
    """Of each filter, if it has one; a pool behind them wants none below 0."""
    low = 0.0 if shape.pool else -0.5
    return np.random.default_rng(4).uniform(low, 1.5, shape.k).astype(np.float32)


def biases_of(shape, tactic, bias):
    """As a kernel reads them."""
    return pack_biases([bias, *([slopes_of(shape)] if shape.has_slopes else [])], tactic, shape)


def activated(shape, y):
    if shape.gate == 8:
        return np.where(y < 0, y * slopes_of(shape), y)
    if not shape.gate:
        return np.maximum(y, y * shape.slope)
    step = STEP if shape.y_type in (INT8, FP8) else 1.0
    return GATES[shape.gate](y * step) / step


def pooled(y):
    return y.reshape(y.shape[0], y.shape[1] // 2, 2, y.shape[2] // 2, 2, -1).max((2, 4))


def agrees(found, expected, dtype, x_type=None):
    """FP8's sums keep some 14 bits on Hopper's matrix units; codes of it are an eighth of a value apart."""
    if dtype is FP8:
        expected = decoded(np, encoded(np, expected, FP8, {}), FP8).astype(np.float64)
        off, lost = np.abs(decoded(np, found, FP8) - expected), 2e-3 * np.abs(expected).max()
        return (off <= lost + np.abs(expected) / 8).all() and (off > lost).mean() < 0.05
    if x_type is FP8:
        return relative(found, expected) < 4e-3
    if dtype is INT8:
        off = np.abs(found.astype(np.float64) - np.clip(np.rint(expected), -128, 127))
        return off.max() <= 1 and (off > 0).mean() < 2e-3
    return relative(found, expected) < (2e-3 if dtype is HALF else 1e-5)


def as_read(shape, x):
    """An image with the gaps between its pixels."""
    wide = np.zeros((shape.n, shape.h, shape.w, shape.x_pitch), x.dtype)
    wide[..., : shape.c] = x
    return wide


def untouched(shape, expected):
    """What a kernel writes into."""
    room = expected.shape[3] if shape.linear else shape.y_pitch
    return np.full((*expected.shape[:3], room), 77, stored(shape.y_type))


def assert_written(shape, found, expected, name):
    """A kernel gave the definition's numbers, and wrote nothing else."""
    if shape.linear:
        n, oh, ow, k = expected.shape
        found = found.reshape(n, k, oh, ow).transpose(0, 2, 3, 1)
    assert agrees(found[..., : expected.shape[3]], expected, shape.y_type, shape.x_type), name
    assert (found[..., expected.shape[3] :] == 77).all(), name


def problem(shape):
    """Arrays of a problem, and what must come out."""
    random, dims = np.random.default_rng(3), (shape.k, shape.group_channels or shape.c, *shape.kernel)
    if shape.x_type is INT8:
        x: Any = random.integers(-127, 128, (shape.n, shape.h, shape.w, shape.c))
        weights: Any = random.integers(-127, 128, dims).astype(np.int8)
        size = 40 if shape.y_type is INT8 else 1
        scale = size / (73**2 * (shape.c * shape.taps) ** 0.5) * (0.8 + 0.4 * random.random(shape.k))
    elif shape.x_type is FP8:
        sizes = (shape.n, shape.h, shape.w, shape.c), dims
        x, weights = (np.clip(100 * random.standard_normal(size), -448, 448).astype(FP8.numpy) for size in sizes)
        size = 100 if shape.y_type is FP8 else 1
        scale = size / (100**2 * (shape.c * shape.taps) ** 0.5) * (0.8 + 0.4 * random.random(shape.k))
    else:
        x = random.standard_normal((shape.n, shape.h, shape.w, shape.c))
        weights = random.standard_normal(dims) * (2 / shape.c / shape.taps) ** 0.5
        scale = np.ones(shape.k)
    x, weights = x.astype(shape.x_type.numpy), weights.astype(shape.x_type.numpy)
    scale, bias = scale.astype(np.float32), random.standard_normal(shape.k).astype(np.float32)
    sums = convolution(shape, x.astype(np.float64), weights)
    y = (sums * scale + bias).reshape(shape.n, shape.oh, shape.ow, shape.k)
    y, residual = activated(shape, y), None
    if shape.residual_type is not None:
        residual = np.zeros((*y.shape[:3], shape.residual_pitch), shape.residual_type.numpy)
        residual[..., : shape.k] = random.integers(-90, 90, y.shape)
        y = y + 0.37 * residual[..., : shape.k].astype(np.float64)
        slopes = {0: shape.residual_slope, 8: slopes_of(shape), 9: 0.0}[shape.residual_gate]
        y = np.where(y < 0, y * slopes, y)
    if shape.pool:
        y = pooled(y)
    if shape.reorg:
        y = Reorg(stride=shape.reorg).compute(np.ascontiguousarray(y.transpose(0, 3, 1, 2))).transpose(0, 2, 3, 1)
    if shape.blocks:
        n, h, w, k = y.shape
        s, channels = shape.blocks, k // shape.blocks**2
        y = y.reshape(n, h, w, s, s, channels).transpose(0, 1, 3, 2, 4, 5).reshape(n, h * s, w * s, channels)
        rows, columns = shape.block_sides
        y = y[:, shape.cut[0] : shape.cut[0] + rows, shape.cut[1] : shape.cut[1] + columns]
    return x, weights, scale, bias, residual, y


def stem_problem(element, pool, prelu, y_type=None):
    """A first layer's shape, the image, what its kernel reads beside it, and what must come out, in the element's type unless given."""
    random = np.random.default_rng(5)
    n, h, w, k, step = 2, 22, 38, 32, np.float32(1 / (448 if element is FP8 else 127))
    image = random.random((n, 3, h, w), dtype=np.float32)
    weights = random.standard_normal((k, 3, 3, 3)) * 0.3
    if element is INT8:
        weights = np.clip(np.rint(weights * 80), -127, 127)
    weights = (weights * 100 if element is FP8 else weights).astype(element.numpy)
    sizes = {INT8: 40 / (27**0.5 * 73 * 73), FP8: 100 / (27**0.5 * 30 * 259)}
    scale = np.full(k, sizes.get(element, 1), np.float32)
    bias = random.standard_normal(k).astype(np.float32)
    taken = image.astype(np.float16) if element is HALF else np.rint(image / step)
    if element is FP8:
        taken = (image / step).astype(FP8.numpy).astype(np.float32)
    plain = square(n, h, 3, k, 3, element)
    plain = dataclasses.replace(plain, w=w, ow=w)
    y = convolution(plain, taken.transpose(0, 2, 3, 1).astype(np.float64), weights).reshape(n, h, w, k) * scale + bias
    slopes = random.uniform(0.0, 1.5, k).astype(np.float32) if prelu else np.full(k, 0.1, np.float32)
    expected = np.where(y < 0, y * slopes, y)
    shape = StemShape(
        n=n, c=3, h=h, w=w, k=k, x_strides=(3 * h * w, h * w, w, 1), x_type=DType.FLOAT32, element=element,
        y_pitch=k, y_type=y_type or element, pool=pool, slope=0.1, prelu=prelu, x_scale=float(step),
    )  # fmt: skip
    given = image, pack_stem(shape, weights), scale, np.concatenate([bias, slopes]) if prelu else bias
    return shape, given, pooled(expected) if pool else expected
