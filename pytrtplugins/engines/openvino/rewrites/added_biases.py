"""Move biases of convolutions with free dims to an Add, since OpenVINO loses some biases."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ....model.ir import add_constant, array_of, dims_of, is_op, operand, swap
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override

__all__ = ["AddedBiases"]

_CHANNELS = 2
"""Axes before those of places: images and channels."""


class AddedBiases(Pass):
    """Rewrite a Conv with a bias and free dims as a Conv without one, and an Add.

    OpenVINO's reader of ONNX puts a ShapeOf behind each convolution that has a bias, before the bias (2026.4). Where the network uses a
    free dim as a number, for example in an Expand to the size of the batch, this ShapeOf stays. The convolution then has two readers,
    so that OpenVINO joins the bias with the quantization behind it, and loses it there. An Add is read without a ShapeOf, and joined
    with the convolution. What stays: (1) results whose dims are known; (2) results of unknown rank; (3) networks without codes.
    """

    name: ClassVar[str] = "added-biases"

    @override
    def call(self, model: ir.Model) -> PassResult:
        if not any(is_op(node, "QuantizeLinear") for node in model.graph):  # (3)
            return PassResult(model, False)
        nodes = [node for node in model.graph if is_op(node, "Conv") and _has_free_dims(node)]
        biased = [(node, bias) for node in nodes if (bias := operand(node, 2)) is not None]
        for node, bias in biased:
            _add_bias(model.graph, node, bias)
        return PassResult(model, bool(biased))


def _has_free_dims(node: ir.Node) -> bool:
    dims = dims_of(node.outputs[0])  # (1), (2)
    return dims is not None and not all(isinstance(dim, int) for dim in dims)


def _add_bias(graph: ir.Graph, node: ir.Node, bias: ir.Value) -> None:
    """Replace a Conv by a Conv without a bias and an Add."""
    name, rank = node.outputs[0].name, len(node.outputs[0].shape or ())
    dims = (-1, *[1] * (rank - _CHANNELS))
    plain = ir.Node("", "Conv", node.inputs[:2], attributes=node.attributes.values(), name=node.name)
    nodes, array = [plain], array_of(bias)
    if array is None:
        shape = add_constant(graph, f"{name}.dims", np.array(dims, np.int64))
        nodes.append(ir.node("Reshape", [bias, shape]))
        column = nodes[-1].outputs[0]
    else:
        column = add_constant(graph, f"{name}.bias", array.reshape(dims))
    nodes.append(ir.node("Add", [plain.outputs[0], column]))
    plain.outputs[0].type, plain.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
    graph.insert_before(node, nodes)
    swap(graph, [node], nodes[-1].outputs[0])
