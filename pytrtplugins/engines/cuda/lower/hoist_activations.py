"""Hoist activations and QuantizeLinear above Reshape, Transpose, Slice and DepthToSpace, next to the convolution."""

from __future__ import annotations

from typing import ClassVar

from ....model.ir import is_op, only_read_by
from ....utils.optional import ir
from ....utils.override import override
from .rewrite import Rewrite, codes_scale

__all__ = ["HoistActivations"]

_ABSORBED = ("Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "QuantizeLinear")
_MOVING = ("DepthToSpace", "Reshape", "Slice", "Transpose")
"""Operators that convolutions of this engine compute, and operators that exporters write between them and a convolution. Both are rules
of this rewrite, not traits."""


class HoistActivations(Rewrite["list[ir.Node]"]):
    """Conv, data movement, activation or QuantizeLinear → Conv, activation, data movement: the convolution can absorb it then.

    What does not match: (1) an activation that is none of a convolution's; (2) codes that are not int8 or FP8 around 0 with one scale;
    (3) values that something else reads too.
    """

    name: ClassVar[str] = "before-moves"
    needs: ClassVar[tuple[str, ...]] = _MOVING

    @override
    def match(self, node: ir.Node) -> list[ir.Node] | None:
        """Return the convolution and the nodes of data movement after it, in order."""
        if node.domain or node.op_type not in _ABSORBED:  # case 1
            return None
        if is_op(node, "QuantizeLinear") and codes_scale(node) is None:  # case 2
            return None
        chain = [node]
        while not is_op(chain[0], "Conv"):
            before = chain[0].inputs[0].producer() if chain[0].inputs[0] is not None else None
            if before is None or before.domain or before.op_type not in (*_MOVING, "Conv"):
                return None
            if not only_read_by(before, chain[0]):  # case 3
                return None
            chain.insert(0, before)
        return chain[:-1] if len(chain) > 2 else None

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: list[ir.Node]) -> None:
        conv, first, last = match[0].outputs[0], match[1], match[-1].outputs[0]
        y = node.outputs[0]
        y.replace_all_uses_with(last, replace_graph_outputs=True)
        graph.remove(node)
        node.replace_input_with(0, conv)
        first.replace_input_with(0, y)
        graph.insert_after(match[0], node)
        last.name, y.name, y.shape = y.name, last.name, conv.shape
        for move in match[1:]:
            move.outputs[0].type = y.type
