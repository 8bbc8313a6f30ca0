"""Rewrite BatchNormalization in training mode as mean and variance of the batch, with operators that every engine has."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..model.ir import add_constant, dims_of, is_op, swap
from ..utils.optional import ir
from ..utils.override import override
from ._base import Pass, PassResult

__all__ = ["TrainingNorms"]

_TRAINING_MODE = 14
"""The opset from which on an attribute says the mode; before it, further outputs do."""
_AXES = 18
"""The opset from which on ReduceMean has its axes as an input."""


class TrainingNorms(Pass):
    """Rewrite each BatchNormalization in training mode whose running statistics nothing reads.

    PyTorch's exporter writes one for weights that are standardized, as in networks without norms (nf_resnet26). What stays: (1) a node
    whose new statistics are read; (2) a tensor of unknown rank; (3) types other than float32, whose sums libraries round in ways of
    their own.
    """

    name: ClassVar[str] = "training-norms"

    @override
    def call(self, model: ir.Model) -> PassResult:
        opset = model.opset_imports.get("", 0)
        nodes = [node for node in model.graph if is_op(node, "BatchNormalization") and _can_be_rewritten(node, opset)]
        for node in nodes:
            _write_out(model.graph, node, opset)
        return PassResult(model, bool(nodes))


def _can_be_rewritten(node: ir.Node, opset: int) -> bool:
    """Whether a node meets the conditions of the pass."""
    trains = node.attributes.get_int("training_mode", 0) if opset >= _TRAINING_MODE else len(node.outputs) > 1
    statistics_are_read = any(output.uses() or output.is_graph_output() for output in node.outputs[1:])
    value = node.inputs[0]
    return (
        bool(trains)
        and not statistics_are_read  # (1)
        and len(dims_of(value) or ()) > 1  # (2)
        and value is not None
        and value.dtype is not None
        and value.dtype.name == "FLOAT"  # (3)
        and node.attributes.get_int("spatial", 1) == 1
    )


def _write_out(graph: ir.Graph, node: ir.Node, opset: int) -> None:
    x, scale, bias = node.inputs[:3]
    name, rank = node.outputs[0].name, len(dims_of(x) or ())
    axes = [axis for axis in range(rank) if axis != 1]
    steps: list[ir.Node] = []

    def step(op_type: str, *inputs: Any, **attributes: Any) -> ir.Value:
        steps.append(ir.node(op_type, inputs, attributes))
        result: ir.Value = steps[-1].outputs[0]
        return result

    def mean(value: Any) -> ir.Value:
        if opset < _AXES:
            return step("ReduceMean", value, axes=axes, keepdims=1)
        return step("ReduceMean", value, add_constant(graph, f"{name}.axes", np.array(axes, np.int64)), keepdims=1)

    def column(value: Any) -> ir.Value:
        if value.dtype is None or value.dtype.name != "FLOAT":
            value = step("Cast", value, to=ir.DataType.FLOAT)  # opset 15 gives scale and bias a type of their own
        dims = np.array([-1, *[1] * (rank - 2)], np.int64)
        return step("Reshape", value, add_constant(graph, f"{name}.dims", dims))

    epsilon = add_constant(graph, f"{name}.epsilon", np.float32(node.attributes.get_float("epsilon", 1e-5)))
    centred = step("Sub", x, mean(x))
    deviation = step("Sqrt", step("Add", mean(step("Mul", centred, centred)), epsilon))
    values = step("Add", step("Mul", step("Div", centred, deviation), column(scale)), column(bias))
    graph.insert_before(node, steps)
    node.resize_outputs(1)
    swap(graph, [node], values)
