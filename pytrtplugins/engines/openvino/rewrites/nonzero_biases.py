"""Add biases to quantized convolutions: without one, OpenVINO scales some results twice."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ....model.ir import add_constant, array_of, is_op, operand
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override

__all__ = ["NonzeroBiases"]

_LEAST_AXES = 3
"""Of a convolution's weights."""
_BIAS = 1e-30
"""Nothing beside any value, but not 0: OpenVINO removes zeros."""


class NonzeroBiases(Pass):
    """Add a bias of 1e-30 to each quantized Conv and ConvTranspose whose bias is missing or zero.

    In networks with free dims, OpenVINO lets a convolution scale its result for one of several readers, and scales it again for another
    (2026.4), also where they read what Neg or a product with a constant makes of it. It does not where something is added first.
    """

    name: ClassVar[str] = "nonzero-biases"

    @override
    def call(self, model: ir.Model) -> PassResult:
        nodes = [node for node in model.graph if _is_quantized(node) and _lacks_bias(node)]
        for node in nodes:
            filters = _filters(node)
            bias = add_constant(model.graph, f"{node.outputs[0].name}.bias", np.full(filters, _BIAS, np.float32))
            node.resize_inputs(3)
            node.replace_input_with(2, bias)
        return PassResult(model, bool(nodes))


def _is_quantized(node: ir.Node) -> bool:
    if not is_op(node, "Conv") and not is_op(node, "ConvTranspose"):
        return False
    weights = node.inputs[1]
    return weights is not None and is_op(weights.producer(), "DequantizeLinear") and _filters(node) > 0


def _lacks_bias(node: ir.Node) -> bool:
    bias = operand(node, 2)
    array = array_of(bias)
    return bias is None or (array is not None and array.dtype == np.float32 and not array.any())


def _filters(node: ir.Node) -> int:
    """How many channels the result has; 0 where the dims of the weights are not known."""
    weights = node.inputs[1]
    if weights is None or weights.shape is None or not weights.shape.is_static() or len(weights.shape) < _LEAST_AXES:
        return 0
    dims = weights.shape.numpy()
    return int(dims[0] if node.op_type == "Conv" else dims[1] * node.attributes.get_int("group", 1))
