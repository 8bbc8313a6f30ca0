"""Rewrite AveragePool of int8 or FP8 codes as a depthwise convolution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ....model.ir import add_constant, dims_of, is_op, swap
from ....utils.optional import ir
from ....utils.override import override
from .rewrite import Rewrite, codes_scale, codes_type

__all__ = ["AverageCodes"]

_MAX_TAPS = 49
"""Of filters that the depthwise kernel computes."""


class AverageCodes(Rewrite["ir.Node"]):
    """AveragePool behind DequantizeLinear → a depthwise convolution with weights of 1, whose scale is 1 by the size of the window.

    The convolution reads codes, sums them exactly, and writes codes where such are wanted: one kernel takes the place of three.

    What does not match: (1) codes that are not int8 or FP8 around 0 with one scale, or of another tensor than images with known channels;
    (2) a pool that counts what is inside of the image only, where it has borders; (3) sizes that are rounded up, or pads by SAME;
    (4) a large window.
    """

    name: ClassVar[str] = "average-codes"
    needs: ClassVar[tuple[str, ...]] = ("AveragePool",)
    leaves_unused: ClassVar[bool] = True

    @override
    def match(self, node: ir.Node) -> ir.Node | None:
        if not is_op(node, "AveragePool") or node.inputs[0] is None:
            return None
        origin, dims, at = node.inputs[0].producer(), dims_of(node.inputs[0]) or (), node.attributes
        known = len(dims) == 4 and isinstance(dims[1], int)
        if not known or not is_op(origin, "DequantizeLinear") or codes_scale(origin) is None:  # case 1
            return None
        if any(at.get_ints("pads", [0])) and not at.get_int("count_include_pad", 0):  # case 2
            return None
        if at.get_int("ceil_mode", 0) or at.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):  # case 3
            return None
        return origin if math.prod(at.get_ints("kernel_shape", [0])) <= _MAX_TAPS else None  # case 4

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: ir.Node) -> None:
        at, y = node.attributes, node.outputs[0]
        channels, window = (dims_of(node.inputs[0]) or ())[1], list(at.get_ints("kernel_shape", []))
        kind = codes_type(match)
        assert kind is not None
        assert isinstance(channels, int)
        ones = add_constant(graph, f"{y.name}.ones", np.ones((channels, 1, *window), kind.numpy))
        scale = add_constant(graph, f"{y.name}.share", np.array(1 / math.prod(window), np.float32))
        weights = ir.node("DequantizeLinear", [ones, scale], name=f"{node.name}.weights")
        factors = weights.outputs[0]
        factors.name, factors.shape, factors.type = f"{y.name}.weights", ones.shape, node.inputs[0].type  # type: ignore[union-attr]
        steps = {name: list(at.get_ints(name, [1, 1])) for name in ("strides", "dilations")}
        attributes: dict[str, Any] = {**steps, "pads": list(at.get_ints("pads", [0] * 4)), "group": channels}
        conv = ir.node("Conv", [node.inputs[0], factors], attributes, name=node.name)
        graph.insert_before(node, [weights, conv])
        swap(graph, [node], conv.outputs[0])
