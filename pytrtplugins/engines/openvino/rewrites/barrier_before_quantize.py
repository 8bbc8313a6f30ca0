"""Keep OpenVINO from fusing a scale or shift into the QuantizeLinear after it, which it does wrongly."""

from __future__ import annotations

from typing import ClassVar

from ....model.ir import array_of, is_op
from ....model.operator_traits import Trait, operators
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import insert_fusion_barrier

__all__ = ["BarrierBeforeQuantize"]

_SCALES = operators(Trait.ARITHMETIC) | {"BatchNormalization", "Identity", "Neg"}
"""What OpenVINO makes factors and summands of."""


class BarrierBeforeQuantize(Pass):
    """Insert Max(x, x) between QuantizeLinear and products with constants that differ and are partly negative.

    In networks with free dims, OpenVINO takes factors into the quantization behind them (2026.4), and forgets that a negative one exchanges
    its lowest and highest value; with one factor for all values it does not. Without its int8 form (``LP_TRANSFORMS_MODE`` off) it errs
    with any factors and summands that are not all the same. Max(x, x), which is x, keeps them apart.

    Args:
        every: Put it before each QuantizeLinear behind a product, sum or batch norm.
    """

    name: ClassVar[str] = "factors-apart"

    def __init__(self, every: bool = False) -> None:
        self.every = every

    @override
    def call(self, model: ir.Model) -> PassResult:
        quantizing = [(node, node.inputs[0]) for node in model.graph if is_op(node, "QuantizeLinear")]
        matches = [(node, value) for node, value in quantizing if value is not None and self._joins(value)]
        for node, value in matches:
            node.replace_input_with(0, insert_fusion_barrier(model.graph, value, node))
        return PassResult(model, bool(matches))

    def _joins(self, value: ir.Value) -> bool:
        """Whether OpenVINO would fuse a tensor's producer with the quantization after it, and wrongly."""
        if not self.every:
            return _is_mixed(value)
        producer = value.producer()
        return producer is not None and producer.op_type in _SCALES and not producer.domain


def _is_mixed(value: ir.Value | None) -> bool:
    """Whether a tensor is a product with constants, some of which are negative and some of which differ."""
    negative = several = False
    while value is not None and (node := value.producer()) is not None:
        if is_op(node, "Neg") or is_op(node, "Identity"):
            negative |= node.op_type == "Neg"
            value = node.inputs[0]
            continue
        if not is_op(node, "Mul") and not is_op(node, "Div"):
            break
        factors = [array_of(operand) for operand in node.inputs]
        place = next((index for index, array in enumerate(factors) if array is not None), None)
        if place is None or (node.op_type == "Div" and place == 0):
            break
        array = factors[place]
        negative |= bool((array < 0).any())
        several |= array.size > 1
        value = node.inputs[1 - place]
    return negative and several
