"""Keep OpenVINO from fusing per-row constants into the MatMul with a constant matrix before them, which it does wrongly."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from ....model.ir import array_of, constant, dims_of, is_op
from ....model.operator_traits import Trait, operators
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .barrier import insert_fusion_barrier

__all__ = ["BarrierAfterMatMul"]

_JOINED = operators(Trait.ARITHMETIC) | {"BatchNormalization", "PRelu"}
_JOINED_TO_FLOAT: Collection[str] = ("Add", "Sub")
"""What OpenVINO joins with a product of a quantized matrix, and of a float one."""
_PLAIN = 2
"""Axes of a product whose columns are its channels."""


class BarrierAfterMatMul(Pass):
    """Insert Max(x, x) between a MatMul of three axes or more with a constant matrix and sums or products along other axes.

    In networks with free dims, OpenVINO takes such constants, which belong to channels, for those of the matrix's columns (2026.4); behind
    a matrix that is not quantized, summands of channels only, if there are as many as columns. Max(x, x), which is x, keeps them apart.
    """

    name: ClassVar[str] = "products-apart"

    @override
    def call(self, model: ir.Model) -> PassResult:
        modified = False
        for node in [node for node in model.graph if is_op(node, "MatMul")]:
            matrix, result = node.inputs[1], node.outputs[0]
            quantized = matrix is not None and is_op(matrix.producer(), "DequantizeLinear")
            if not (quantized or constant(matrix) is not None) or len(dims_of(result) or ()) <= _PLAIN:
                continue
            joined = _JOINED if quantized else _JOINED_TO_FLOAT
            values = [result, *(use.node.outputs[0] for use in result.uses() if is_op(use.node, "Add"))]
            for value in values:
                readers = [(use.node, use.idx) for use in value.uses() if _is_of_rows(use.node, joined)]
                for reader, place in readers:
                    reader.replace_input_with(place, insert_fusion_barrier(model.graph, value, reader))
                    modified = True
        return PassResult(model, modified)


def _is_of_rows(node: ir.Node, joined: Collection[str]) -> bool:
    """Whether a node of these types scales or moves values by constants that differ along other axes than the last."""
    if node.op_type not in joined or node.domain:
        return False
    if node.op_type == "BatchNormalization":
        return True
    constants = [array for value in node.inputs if (array := array_of(value)) is not None]
    return any(array.size > array.shape[-1] for array in constants if array.ndim)
