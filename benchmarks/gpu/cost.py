"""What a network needs at least: operations, and bytes of weights and activations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx

from pytrtplugins.model.decompose import infer_shapes

ITEMSIZE = {"FP32": 4, "TF32": 4, "FP16": 2, "INT8": 1, "FP8": 1}


@dataclass(frozen=True)
class Cost:
    """One run's.

    Attributes:
        operations: Of the convolutions; a multiplication and an addition are two.
        weights: Elements.
        activations: Elements of every tensor that a convolution or a pool writes, and of the inputs.
    """

    operations: int
    weights: int
    activations: int

    def bytes(self, precision: str) -> int:
        """Weights and activations, each once."""
        return ITEMSIZE[precision] * (self.weights + self.activations)


def cost(model: onnx.ModelProto, batch: int) -> Cost:
    """What a network with fixed dims, made for one image, needs for a batch."""
    shaped = infer_shapes(model)
    infos = (*shaped.graph.input, *shaped.graph.value_info, *shaped.graph.output)
    dims = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in infos}
    weights = {tensor.name: list(tensor.dims) for tensor in shaped.graph.initializer}
    operations = 0
    activations = sum(math.prod(dims[info.name]) for info in shaped.graph.input)
    for node in shaped.graph.node:
        if node.op_type == "Conv":
            operations += 2 * math.prod(weights[node.input[1]][1:]) * math.prod(dims[node.output[0]])
        if node.op_type in ("Conv", "MaxPool"):
            activations += math.prod(dims[node.output[0]])
    return Cost(operations * batch, sum(map(math.prod, weights.values())), activations * batch)
