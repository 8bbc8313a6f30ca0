"""BatchNormalization behind a convolution → into its weights and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..utils.optional import require
from ._base import Pass, PassResult
from .placement import constant

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


def _numbers(value: ir.Value | None) -> npt.NDArray[np.float64] | None:
    tensor = constant(value)
    return None if tensor is None else tensor.numpy().astype(np.float64)


def _fold(graph: ir.Graph, conv: ir.Node, norm: ir.Node) -> bool:
    old_weight: Any = conv.inputs[1]
    old_bias: Any = conv.inputs[2] if len(conv.inputs) > 2 else None
    weight, bias = _numbers(old_weight), _numbers(old_bias)
    operands = [_numbers(value) for value in norm.inputs[1:]]
    if weight is None or any(value is None for value in operands) or (old_bias is not None and bias is None):
        return False
    scale, shift, mean, variance = (value for value in operands if value is not None)
    epsilon = norm.attributes.get_float("epsilon", 1e-5)
    with np.errstate(all="ignore"):  # a negative variance gives NaN, here as in a run
        factor = scale / np.sqrt(variance + epsilon)
        folded = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
        shifted = shift + ((0 if bias is None else bias) - mean) * factor
    held: Any = constant(old_weight)
    named: Any = norm.inputs[2] if old_bias is None else old_bias
    conv.resize_inputs(3)
    for index, old, array in ((1, old_weight, folded), (2, named, shifted)):
        conv.replace_input_with(index, _initializer(graph, f"{old.name}_folded", array, held.dtype.numpy()))
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
    taken = {value.name for node in graph for value in node.outputs} | {value.name for value in graph.inputs}
    while unique in graph.initializers or unique in taken:
        unique, number = f"{name}_{number}", number + 1
    with np.errstate(over="ignore", invalid="ignore"):  # what is beyond float16 becomes infinite, as in a run
        tensor = onnx_ir.tensor(array.astype(dtype), name=unique)
    value: ir.Value = onnx_ir.Value(
        name=unique, shape=tensor.shape, type=onnx_ir.TensorType(tensor.dtype), const_value=tensor
    )
    graph.register_initializer(value)
    return value
