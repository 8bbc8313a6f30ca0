"""Convolutions of many shapes for the tests of kernels, their sums by the definition, and YOLOv2's."""

import numpy as np

from pytrtplugins.engines.cuda.conv.hopper import halo_tactics, hopper_tactics
from pytrtplugins.engines.cuda.conv.packing import pack_weights
from pytrtplugins.engines.cuda.conv.problem import Operands
from pytrtplugins.engines.cuda.conv.shape import ConvShape
from pytrtplugins.engines.cuda.conv.stem_kernel import StemShape
from pytrtplugins.engines.cuda.conv.tactics import mma_tactics, simt_tactics
from pytrtplugins.tensor import DType

HALF, INT8, FP8, SINGLE = DType.FLOAT16, DType.INT8, DType.FLOAT8E4M3FN, DType.FLOAT32


YOLOV2 = [  # side, channels, filters, kernel, pool: what differs among YOLOv2-VOC's convolutions behind the first
    *[(208, 32, 64, 3, True), (104, 64, 128, 3, False), (104, 128, 64, 1, False), (104, 64, 128, 3, True)],
    *[(52, 128, 256, 3, False), (52, 256, 128, 1, False), (52, 128, 256, 3, True), (26, 256, 512, 3, False)],
    *[(26, 512, 256, 1, False), (13, 512, 1024, 3, False), (13, 1024, 512, 1, False), (13, 1024, 1024, 3, False)],
    *[(26, 512, 64, 1, False), (13, 1280, 1024, 3, False), (13, 1024, 125, 1, False)],
]


def between(x, y, kernel, x_type, **more):
    """A convolution from x (N, H, W, C) to y (H, W, K); without gaps unless ``more`` says so."""
    (n, h, w, c), (oh, ow, k) = x, y
    given = {"n": n, "h": h, "w": w, "c": c, "x_pitch": c, "oh": oh, "ow": ow, "k": k, "y_pitch": k, **more}
    return ConvShape(kernel=(kernel, kernel), x_type=x_type, **given)


def stem(element, **more):
    """A first layer of 32 filters on an image of 4 x 4 pixels."""
    given = {"y_type": element, "k": 32, "y_pitch": 32, **more}
    return StemShape(n=1, c=3, h=4, w=4, x_strides=(48, 16, 4, 1), x_type=SINGLE, element=element, **given)


def square(n, side, c, k, kernel, x_type, **more):
    more = {"pads": (kernel // 2,) * 2, "y_type": x_type, **more}
    return between((n, side, side, c), (side, side, k), kernel, x_type, **more)


ODD = [
    square(2, 5, 16, 40, 3, HALF),
    square(1, 5, 48, 33, 3, INT8),
    square(1, 5, 48, 33, 3, FP8),
    between((2, 7, 9, 40), (4, 5, 24), 3, HALF, strides=(2, 2), pads=(1, 1)),
    between((1, 8, 8, 96), (8, 8, 65), 3, INT8, y_pitch=72, pads=(2, 2), dilations=(2, 2)),
    between((1, 6, 7, 32), (2, 3, 32), 5, HALF, pads=(0, 0)),
]


def grouped(n, side, groups, width, x_type, filters=None, stride=1, **more):
    """A 3x3 convolution of groups of ``width`` channels, and as many filters unless they are given."""
    size, c, filters = 16 // x_type.itemsize, groups * width, filters or width
    more = {"pads": (1, 1), "y_type": x_type, "group_channels": width, "group_filters": filters, **more}
    out, padded = (side - 1) // stride + 1, -(-c // size) * size
    return between((n, side, side, padded), (out, out, groups * filters), 3, x_type, strides=(stride,) * 2, **more)


GROUPED = [
    *(grouped(1, 5, 64 // width + 1, width, kind) for kind in (HALF, INT8) for width in (4, 8, 16, 24, 32, 64)),
    *(grouped(2, 6, 2, width, kind, stride=2) for kind in (HALF, INT8) for width in (40, 72)),
    grouped(1, 5, 11, 8, FP8, stride=2),
    grouped(1, 5, 3, 48, INT8, filters=20),
    grouped(1, 4, 24, 1, HALF, filters=3),
]
"""Groups narrower and wider than a tile of filters, and such as end within one."""


SINGLES = [
    square(2, 5, 16, 40, 3, SINGLE),
    square(1, 5, 12, 33, 3, SINGLE),
    square(2, 4, 512, 64, 1, SINGLE),
    between((2, 7, 9, 40), (4, 5, 24), 3, SINGLE, x_pitch=44, strides=(2, 2), pads=(1, 1), y_type=SINGLE),
    between((1, 8, 8, 96), (8, 8, 65), 3, SINGLE, y_pitch=72, pads=(2, 2), dilations=(2, 2), y_type=SINGLE),
    between((1, 6, 7, 32), (2, 3, 32), 5, SINGLE, pads=(0, 0), y_type=SINGLE),
]


def tactics_of(family, shape, max_tactics=12, capability=90):
    """A family's tactics."""
    if family in ("halo", "hopper"):
        return {"halo": halo_tactics, "hopper": hopper_tactics}[family](shape, max_tactics=max_tactics)
    return {"mma": mma_tactics, "simt": simt_tactics}[family](shape, capability, max_tactics=max_tactics)


def convolution(shape, x, weights):
    """Sums by the definition, in float64: (pixels, filters)."""
    (r, s), (dy, dx) = shape.kernel, shape.dilations
    padded = np.zeros((shape.n, shape.h + 512, shape.w + 512, shape.c))
    top, left = shape.pads
    padded[:, top : top + shape.h, left : left + shape.w] = x
    y = np.zeros((shape.n, shape.oh, shape.ow, shape.k))
    every = np.zeros((shape.k, shape.c, r, s))  # of all channels: zeros for those of other groups
    for k in range(shape.k):
        first = k // shape.group_filters * shape.group_channels if shape.group_filters else 0
        every[k, first : first + weights.shape[1]] = weights[k]
    for i in range(r):
        for j in range(s):
            rows = np.arange(shape.oh) * shape.strides[0] + i * dy
            columns = np.arange(shape.ow) * shape.strides[1] + j * dx
            y += padded[:, rows][:, :, columns] @ every[:, :, i, j].T
    return y.reshape(-1, shape.k)


def random_problem(shape, seed=0):
    random = np.random.default_rng(seed)
    dims = (shape.n, shape.h, shape.w, shape.c), (shape.k, shape.group_channels or shape.c, *shape.kernel)
    x, weights = (random.integers(-8, 8, size).astype(np.float64) for size in dims)
    return x, weights.astype(shape.x_type.numpy)


def packed_weights(shape, tactic, weights):
    """Weights (K, C / groups, R, S) as the kernels want them."""
    operands = Operands(load=lambda: weights, bias=np.zeros(0, np.float32))
    return pack_weights(shape, tactic, operands.channels_last(shape.x_type))
