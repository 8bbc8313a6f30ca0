"""BatchNormalization behind a convolution → into its weights and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from .._optional import require
from ._base import Pass, PassResult

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["FoldBatchNorm"]


class FoldBatchNorm(Pass):
    """Fold y = (conv(x) - mean) / sqrt(variance + eps) · scale + bias into the convolution, in double precision.

    Only where nothing else reads the convolution's output, and all operands are constants. The tensor that stays has
    the batch norm's name.
    """

    name: ClassVar[str] = "fold-batch-norm"

    def call(self, model: ir.Model) -> PassResult:
        """Fold in place."""
        pairs = [
            (node.inputs[0].producer(), node)
            for node in model.graph
            if _is(node, "BatchNormalization") and node.inputs[0] and not node.attributes.get_int("training_mode", 0)
        ]
        modified = False
        for conv, norm in pairs:
            if conv is not None and _is(conv, "Conv") and _only_reader(conv, norm):
                modified |= _fold(model.graph, conv, norm)
        return PassResult(model, modified)


def _is(node: ir.Node, op_type: str) -> bool:
    return node.op_type == op_type and node.domain == ""


def _only_reader(conv: ir.Node, norm: ir.Node) -> bool:
    output = conv.outputs[0]
    return [use.node for use in output.uses()] == [norm] and not output.is_graph_output() and len(norm.outputs) == 1


def _constants(node: ir.Node, first: int) -> list[npt.NDArray[np.float64] | None]:
    values = [_constant(value) for value in node.inputs[first:]]
    return [None if value is None else value.numpy().astype(np.float64) for value in values]


def _constant(value: ir.Value | None) -> Any:
    """The tensor of an initializer or of a Constant node; None for what is computed, and for an absent input."""
    constant = require("onnx_ir", extra="onnx", feature="passes").convenience.get_const_tensor
    return None if value is None else constant(value)


def _fold(graph: ir.Graph, conv: ir.Node, norm: ir.Node) -> bool:
    weight, *rest = _constants(conv, 1)
    operands = _constants(norm, 1)
    has_bias = len(conv.inputs) > 2 and conv.inputs[2] is not None
    if weight is None or any(value is None for value in operands) or (has_bias and rest[0] is None):
        return False
    scale, shift, mean, variance = (value for value in operands if value is not None)
    epsilon = norm.attributes.get_float("epsilon", 1e-5)
    with np.errstate(all="ignore"):  # a negative variance gives NaN, here as in a run
        factor = scale / np.sqrt(variance + epsilon)
        bias = rest[0] if has_bias and rest[0] is not None else np.zeros_like(factor)
        folded = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
        shifted = shift + (bias - mean) * factor
    dtype = _constant(conv.inputs[1]).dtype.numpy()
    names = (conv.inputs[1], conv.inputs[2] if has_bias else norm.inputs[2])
    for index, (array, old) in enumerate(zip((folded, shifted), names, strict=True), start=1):
        value = _initializer(graph, f"{old.name if old is not None else conv.name}_folded", array, dtype)
        if index < len(conv.inputs):
            conv.replace_input_with(index, value)
        else:
            conv.resize_inputs(index + 1)
            conv.replace_input_with(index, value)
    output, result = conv.outputs[0], norm.outputs[0]
    name = result.name
    result.replace_all_uses_with(output, replace_graph_outputs=True)
    graph.remove(norm, safe=True)
    output.name = name
    output.shape, output.type = result.shape, result.type
    return True


def _initializer(graph: ir.Graph, name: str, array: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> ir.Value:
    onnx_ir = require("onnx_ir", extra="onnx", feature="passes")
    unique, number = name, 2
    while unique in graph.initializers:
        unique, number = f"{name}_{number}", number + 1
    with np.errstate(over="ignore", invalid="ignore"):  # what is beyond float16 becomes infinite, as in a run
        tensor = onnx_ir.tensor(array.astype(dtype), name=unique)
    value: ir.Value = onnx_ir.Value(
        name=unique, shape=tensor.shape, type=onnx_ir.TensorType(tensor.dtype), const_value=tensor
    )
    graph.register_initializer(value)
    return value
