"""Infer the output dims of fused nodes from their input dims."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....model.ir import dims_of, is_op
from ....utils.optional import ir
from ..device.activation import PLAIN
from .rewrite import DOMAIN, has_rows, weight_dims

__all__ = ["fused_dims"]


def fused_dims(node: ir.Node) -> list[Sequence[int]] | None:
    """Infer the output dims of a fused node; None for other nodes, and where input dims are unknown."""
    known = [tuple(dims_of(value) or (None,)) for value in node.inputs if value is not None]
    dims = [tuple(dim for dim in each if isinstance(dim, int)) for each in known]
    if node.domain != DOMAIN or dims != known:
        return None
    if is_op(node, "Attention", DOMAIN):
        return [_attention_dims(*dims)]
    if is_op(node, "Conv", DOMAIN) and has_rows(node):
        return [(*dims[0][:-1], weight_dims(node)[0])]
    if is_op(node, "Conv", DOMAIN):
        return [_conv_dims(node, dims[0], weight_dims(node))]
    if is_op(node, "VolumePool", DOMAIN):
        (read, written), (n, c, *_) = node.attributes.get_ints("frames", (1, 1)), dims[0]
        return [(n // read * written, c, *node.attributes.get_ints("sizes", ()))]
    if is_op(node, "Recurrent", DOMAIN):
        return _recurrent_dims(node, dims[0])
    if is_op(node, "SqueezeExcite", DOMAIN):
        return [dims[0] if node.attributes.get_int("scales", 1) else (*dims[0][:2], 1, 1)]
    if is_op(node, "Suppress", DOMAIN):
        *images, rows, three = dims_of(node.outputs[0]) or ()
        return [(*dims[1][: len(images)], rows, three), (1,)]
    if is_op(node, "PaddedNonZero", DOMAIN):
        is_flat = len(dims_of(node.outputs[0]) or ()) == 2
        return [(len(dims[0]), *([math.prod(dims[0])] if is_flat else dims[0])), (1,)]
    if is_op(node, "PaddedUnique", DOMAIN):
        is_flat = any(value.name and len(dims_of(value) or ()) == 1 for value in node.outputs[:-1])
        return [*[[math.prod(dims[0])] if is_flat else dims[0]] * (len(node.outputs) - 1), (1,)]
    return [dims[0]] if node.op_type in PLAIN else None


def _recurrent_dims(node: ir.Node, x: tuple[int, ...]) -> list[Sequence[int]]:
    hidden, directions = node.attributes.get_int("hidden_size", 1), (dims_of(node.inputs[1]) or (1,))[0]
    if node.attributes.get_int("layout", 0):
        states = (x[0], directions, hidden)
        return [(*x[:2], directions, hidden), states, states]
    states = (directions, x[1], hidden)
    return [(x[0], directions, x[1], hidden), states, states]


def _conv_dims(node: ir.Node, x: tuple[int, ...], weights: tuple[int, ...]) -> Sequence[int]:
    at = node.attributes
    pads, strides, dilations = (at.get_ints(name, ()) for name in ("pads", "strides", "dilations"))
    places = zip(x[2:], weights[2:], pads, pads[2:], strides, dilations, strict=False)
    sides = [(side + a + b - (size - 1) * d - 1) // stride + 1 for side, size, a, b, stride, d in places]
    if at.get_int("pool", 0):
        sides = [side // 2 for side in sides]
    if block := at.get_int("blocks", 0):
        cut = at.get_ints("cut", [0] * 4)
        places = zip(sides, cut, cut[2:], strict=False)
        return (x[0], weights[0] // block**2, *(side * block - before - behind for side, before, behind in places))
    stride = at.get_int("reorg", 0) or 1
    return (x[0], weights[0] * stride**2, *(side // stride for side in sides))


def _attention_dims(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], *biases: tuple[int, ...]
) -> Sequence[int]:
    outer = np.broadcast_shapes(q[:-2], k[:-2], v[:-2])
    rows = [bias[:-1] for bias in biases]
    rows = [(1, *row[1:]) if len(row) == 3 and outer[0] % row[0] == 0 else row for row in rows]  # its matrices repeat
    return (*np.broadcast_shapes((*outer, q[-2]), *rows), v[-1])
