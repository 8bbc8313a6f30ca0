"""Keep padding of quantized values in float: OpenVINO computes it wrongly in 8 bits."""

from __future__ import annotations

from typing import ClassVar

from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import insert_fusion_barrier

__all__ = ["KeepPadsInFloat"]


class KeepPadsInFloat(Pass):
    """Let each Pad, and each AveragePool that counts its padding, read float values in models with Q/DQ.

    OpenVINO moves DequantizeLinear behind the nodes that only copy or scale values, and so across the border: where a Pad
    has pads along one axis, or where the zero point is not 0 and AveragePool counts the border, the results are wrong
    (2026.4). It moves nothing across Max, so Max(x, x), which is x, stands before such nodes.
    """

    name: ClassVar[str] = "float-pads"

    @override
    def call(self, model: ir.Model) -> PassResult:
        nodes = [node for node in model.graph if node.domain == ""]
        if not any(node.op_type == "DequantizeLinear" for node in nodes):
            return PassResult(model, False)
        padding = [(node, value) for node in nodes if _has_border(node) and (value := node.inputs[0]) is not None]
        for node, value in padding:
            node.replace_input_with(0, insert_fusion_barrier(model.graph, value, node))
        return PassResult(model, bool(padding))


def _has_border(node: ir.Node) -> bool:
    return node.op_type == "Pad" or (
        node.op_type == "AveragePool" and node.attributes.get_int("count_include_pad", 0) != 0
    )
