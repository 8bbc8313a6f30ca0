"""Separate sums of quantized values from a quantization with a far larger scale: OpenVINO fuses the two wrongly."""

from __future__ import annotations

from typing import ClassVar

from ....model.ir import array_of, constant, is_op
from ....model.operator_traits import Trait, operators
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import insert_fusion_barrier

__all__ = ["ScalesApart"]

_RATIO = 4096
"""OpenVINO's result is off by one code where the scales differ by a factor of 40,000, and wrong at 80,000 (2026.4)."""
_ACTIVATIONS = operators(Trait.ACTIVATION)


class ScalesApart(Pass):
    """Insert Max(x, x) before an operand of Add or Sub whose scale is at least 4,096 times the other one's.

    The scale of an operand is the one that it was quantized with last; the scale that the result is quantized with next counts, too.
    OpenVINO lets a convolution add the other operand, in units of the smaller scale (2026.4). The zero point of the larger scale is
    then a number that float32 does not hold exactly. Quantizers give a tensor of zeros the scale 1, so that a block whose last factors
    are 0 is such an operand. Max(x, x), which is x, keeps them apart.
    """

    name: ClassVar[str] = "scales-apart"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for node in [node for node in model.graph if is_op(node, "Add") or is_op(node, "Sub")]:
            scales = [_scale_before(value) for value in node.inputs] + _scales_behind(node.outputs[0])
            smallest = min(filter(None, scales), default=0.0)
            for index, value in enumerate(node.inputs):
                if value is not None and smallest and scales[index] >= _RATIO * smallest:
                    node.replace_input_with(index, insert_fusion_barrier(model.graph, value, node))
                    modified = True
        return PassResult(model, modified)


def _scale_before(value: ir.Value | None) -> float:
    """The scale that a tensor was quantized with last, before operators of one tensor; 0 where it is not known."""
    while value is not None and (node := value.producer()) is not None:
        if is_op(node, "DequantizeLinear"):
            return _scale(node)
        if any(other is not None and constant(other) is None for other in node.inputs[1:]):
            return 0.0
        value = node.inputs[0] if node.inputs else None
    return 0.0


def _scales_behind(value: ir.Value) -> list[float]:
    """The scales that a tensor, or what an activation makes of it, is quantized with."""
    readers = [use.node for use in value.uses()]
    readers += [use.node for node in readers if node.op_type in _ACTIVATIONS for use in node.outputs[0].uses()]
    return [_scale(node) for node in readers if is_op(node, "QuantizeLinear")]


def _scale(node: ir.Node) -> float:
    """The largest scale of a node that (de)quantizes; 0 where it is computed."""
    scale = array_of(node.inputs[1])
    return 0.0 if scale is None else float(scale.max(initial=0))
