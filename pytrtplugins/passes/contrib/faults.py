"""Forms of ``com.microsoft`` that onnxruntime's kernels compute wrong, or that end its process: they are written with ONNX's operators.

All seen with onnxruntime 1.32: (1) FusedMatMul and TransposeMatMul with ``transA``, where the second operand is a vector, read the first
as if its axes had not changed; (2) QLinearLeakyRelu and QLinearSigmoid without a zero point of the result read behind their inputs.
"""

from __future__ import annotations

from .node import ContribNode, UnknownTypeError
from .table import BODIES, CONTRIB, Table

__all__ = ["FAULTS"]


def _product_with_vector(node: ContribNode) -> str:
    if not node.attribute("transA", 0) or len(node.dims(1)) != 1:
        raise UnknownTypeError("a form without a fault")  # stays as it is
    return BODIES[CONTRIB, node.node.op_type](node)


def _without_zero_point(node: ContribNode) -> str:
    if node.has(4):
        raise UnknownTypeError("a form without a fault")  # stays as it is
    return BODIES[CONTRIB, node.node.op_type](node)


FAULTS: Table = {
    **{(CONTRIB, name): _product_with_vector for name in ("FusedMatMul", "TransposeMatMul")},
    **{(CONTRIB, name): _without_zero_point for name in ("QLinearLeakyRelu", "QLinearSigmoid")},
}
"""Operators of which some forms are written out for onnxruntime, too."""
