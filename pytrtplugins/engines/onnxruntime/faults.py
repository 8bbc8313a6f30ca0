"""What onnxruntime's optimizer makes wrong of ONNX's own operators, as seen with 1.32, is kept away from it."""

from __future__ import annotations

import numpy as np

from ...model.proto import copy_of, numpy_type, tensors_of
from ...utils.optional import onnx
from ...validation.operators import standard_domain

__all__ = ["harmful_optimizers", "with_zero_points"]


def harmful_optimizers(model: onnx.ModelProto) -> list[str]:
    """Optimizers to leave out: one joins Transpose and MatMul, and computes something else where the second operand is a vector."""
    types = {name: info.type.tensor_type for name, info in tensors_of(model.graph).items()}

    def is_vector(name: str) -> bool:
        kind = types.get(name)
        return kind is None or not kind.HasField("shape") or len(kind.shape.dim) == 1

    transposed = {node.output[0] for node in model.graph.node if node.op_type == "Transpose"}
    products = [node for node in model.graph.node if node.op_type == "MatMul" and node.input[0] in transposed]
    return ["MatmulTransposeFusion"] if any(is_vector(node.input[1]) for node in products) else []


def with_zero_points(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give DequantizeLinear of int8 and other signed codes the zero point that it leaves out; the same model where none does.

    onnxruntime moves the node behind Transpose, Reshape and the like, and puts a QuantizeLinear there: without a zero point that gives
    uint8, which has no negative codes.
    """
    signed = {getattr(onnx.TensorProto, name) for name in ("INT4", "INT8", "INT16", "UINT4", "UINT16")}
    types = {name: info.type.tensor_type for name, info in tensors_of(model.graph).items()}
    missing = [
        index
        for index, node in enumerate(model.graph.node)
        if node.op_type == "DequantizeLinear"
        and not standard_domain(node.domain)
        and not (len(node.input) > 2 and node.input[2])
        and all(name in types and types[name].HasField("shape") for name in node.input[:2])
        and types[node.input[0]].elem_type in signed
        and all(dim.HasField("dim_value") for dim in types[node.input[1]].shape.dim)
    ]
    if not missing:
        return model
    changed = copy_of(model)
    for index in missing:
        node = changed.graph.node[index]
        kind, dims = types[node.input[0]].elem_type, [dim.dim_value for dim in types[node.input[1]].shape.dim]
        zeros = onnx.numpy_helper.from_array(np.zeros(dims, numpy_type(kind)), f"{node.output[0]}/zero_point")
        changed.graph.initializer.append(zeros)
        node.input[:] = [*node.input[:2], zeros.name]
    return changed
