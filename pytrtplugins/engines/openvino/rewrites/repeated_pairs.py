"""Remove the second of two quantizations with the same scale."""

from __future__ import annotations

from typing import ClassVar

from ....model.ir import array_of, is_op, remove_unused
from ....model.operator_traits import Trait, operators
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override

__all__ = ["DropRepeatedPairs"]

_MOVING = operators(Trait.KEEPS_ORDER) | {"Transpose"}


class DropRepeatedPairs(Pass):
    """Remove Q/DQ after Q/DQ of the same scale and zero point with only data movement between them; a Q alone directly after DQ.

    `Quantize` writes such pairs around plugins. Where a plugin's decomposition takes its place they have no use, and
    OpenVINO (2026.4) ends with a segmentation fault at some of them: behind a Concat in float, before a matrix product.
    """

    name: ClassVar[str] = "drop-repeated-pairs"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for quantize in [node for node in model.graph if is_op(node, "QuantizeLinear")]:
            value, codes = quantize.inputs[0], _codes(quantize)
            origin = _origin(value)
            if value is None or origin is None or codes is None or _codes(origin) != codes:
                continue
            for reader in [use.node for use in quantize.outputs[0].uses()]:
                after = reader.outputs[0]
                if is_op(reader, "DequantizeLinear") and _codes(reader) == codes and not after.is_graph_output():
                    after.replace_all_uses_with(value)
                    modified = True
            before = origin.inputs[0] if value is origin.outputs[0] else None
            if before is not None and not quantize.outputs[0].is_graph_output():
                quantize.outputs[0].replace_all_uses_with(before)
                modified = True
        if modified:
            remove_unused(model)
        return PassResult(model, modified)


def _origin(value: ir.Value | None) -> ir.Node | None:
    """The DequantizeLinear that gave the values, past the nodes that moved them; None if they were computed."""
    node = None if value is None else value.producer()
    while node is not None and node.domain == "" and node.op_type in _MOVING:
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    return node if is_op(node, "DequantizeLinear") else None


def _codes(node: ir.Node) -> tuple[float, int, str] | None:
    """Scale, zero point and its type, where they are one constant each for all values; None otherwise."""
    arrays = [array for array in map(array_of, node.inputs[1:3]) if array is not None]
    if len(arrays) != 2 or any(array.size != 1 for array in arrays):
        return None
    scale, zero = arrays
    return scale.item(), zero.item(), zero.dtype.name
