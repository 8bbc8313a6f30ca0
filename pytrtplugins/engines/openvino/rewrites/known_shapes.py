"""Fold shape arithmetic whose results are known before a run, and add the dims that follow."""

from __future__ import annotations

import math
from typing import ClassVar

from ....model.operator_traits import Trait, operators
from ....passes import Pass, PassResult
from ....passes.constants import PropagateConstants
from ....utils.optional import ir
from ....utils.override import override

__all__ = ["KnownShapes"]

_SOURCES = operators(Trait.READS_SHAPE) | {"ConstantOfShape"}
_WHOLE = ("BOOL", "INT32", "INT64")
_ARITHMETIC = operators(Trait.ARITHMETIC) | {
    "Cast", "Ceil", "Clip", "Concat", "ConstantOfShape", "Floor", "Max", "Min", "Neg", "Sqrt", "Squeeze", "Unsqueeze"
}  # fmt: skip
"""Operators with which exporters divide and round sizes, and lay them side by side."""
_LAYERS = operators(Trait.WEIGHTED)
_MAX_ELEMENTS, _MAX_FLOATS = 1 << 12, 8


class KnownShapes(Pass):
    """Fold small integer and boolean tensors as far as they are known, in models that read dims of tensors.

    PyTorch's exporter writes pads, shapes and positions as dozens of nodes, of which libraries know fewer values than could be known.
    What stays: (1) Constants; (2) outputs of the model; (3) results of other types, or of more than 4096 elements. Of floating-point
    numbers only a few are computed, by which sizes are divided and rounded, also where they are quantized; of weights of layers none.
    """

    name: ClassVar[str] = "known-shapes"

    @override
    def call(self, model: ir.Model) -> PassResult:
        if not any(node.op_type in _SOURCES for node in model.graph):
            return PassResult(model, False)
        return PropagateConstants(computes=_is_small)(model)


def _is_small(node: ir.Node) -> bool:
    return node.op_type not in ("Constant", "If") and all(
        not value.is_graph_output()
        and value.dtype is not None
        and value.shape is not None
        and value.shape.is_static()
        and math.prod(value.shape.numpy()) <= _most_elements(node, value.dtype.name)
        for value in node.outputs
    )


def _most_elements(node: ir.Node, dtype: str) -> int:
    if dtype in _WHOLE:
        return _MAX_ELEMENTS
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return -1 if _is_weight(node) else _MAX_FLOATS
    return _MAX_FLOATS if dtype == "FLOAT" and node.op_type in _ARITHMETIC else -1


def _is_weight(node: ir.Node) -> bool:
    """Whether layers read what a node quantizes or dequantizes."""
    readers = [use.node for use in node.outputs[0].uses()]
    return any(
        reader.op_type in _LAYERS or (reader.op_type == "DequantizeLinear" and _is_weight(reader)) for reader in readers
    )
