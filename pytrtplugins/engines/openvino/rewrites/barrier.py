"""Insert Max(x, x), across which OpenVINO neither moves nor fuses nodes; and Reshape, which checks dims at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....model.ir import add_constant
from ....utils.optional import ir

__all__ = ["checked_as", "checked_dims", "fixed_values", "insert_fusion_barrier"]


def insert_fusion_barrier(graph: ir.Graph, value: ir.Value, reader: ir.Node) -> ir.Value:
    """Insert Max(x, x) before one reader of ``value``, and return its output; OpenVINO 2026.4 does not see that it equals x."""
    same: ir.Value = ir.Value(type=value.type, shape=value.shape)
    graph.insert_before(reader, ir.node("Max", [value, value], outputs=[same]))
    return same


def checked_dims(graph: ir.Graph, value: ir.Value, reader: ir.Node, dims: Sequence[int]) -> ir.Value:
    """Insert a Reshape before a reader of ``value`` that fails for other dims; 0 stands for any dim."""
    target = add_constant(graph, f"{_name(reader)}.dims", np.array(dims, np.int64))
    return _insert_reshape(graph, value, reader, target, [dim or value.shape[axis] for axis, dim in enumerate(dims)])  # type: ignore[index]


def checked_as(graph: ir.Graph, value: ir.Value, axis: int, reader: ir.Node, others: Sequence[ir.Value]) -> ir.Value:
    """Insert a Reshape that fails unless an axis is as long as the longest last axis of other tensors.

    Its shape has the length of another axis, too, and both are multiplied by Min(length, 1): else OpenVINO, which then knows that lengths
    are equal or one alone is new, takes what is left of the elements.
    """
    name, rank = _name(reader), len(value.shape or ())
    steps: list[ir.Node] = []

    def step(op_type: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        steps.append(ir.node(op_type, inputs, attributes))
        result: ir.Value = steps[-1].outputs[0]
        result.type = ir.TensorType(ir.DataType.INT64)
        return result

    def length(other: ir.Value, place: int) -> ir.Value:
        return step("Gather", step("Shape", other), add_constant(graph, f"{name}.place", np.array([place], np.int64)))

    one_constant = add_constant(graph, f"{name}.one", np.array([1], np.int64))
    lengths = [length(other, -1) for other in others]
    longest = step("Max", *lengths) if len(lengths) > 1 else lengths[0]
    some, second = step("Min", longest, one_constant), 0 if axis else 1
    parts = [add_constant(graph, f"{name}.any", np.array([0], np.int64)) for _ in range(rank)]
    parts[axis] = step("Mul", longest, some)
    parts[second] = step("Mul", length(value, second), some)
    target = step("Concat", *parts, axis=0)
    graph.insert_before(reader, steps)
    return _insert_reshape(graph, value, reader, target, list(value.shape or ()))


def _name(reader: ir.Node) -> str:
    return reader.name or next(output.name for output in reader.outputs if output.name)


def _insert_reshape(
    graph: ir.Graph, value: ir.Value, reader: ir.Node, target: ir.Value, dims: Sequence[Any]
) -> ir.Value:
    same: ir.Value = ir.Value(type=value.type, shape=ir.Shape(dims))
    graph.insert_before(reader, ir.node("Reshape", [value, target], outputs=[same], name=_name(reader)))
    return same


def fixed_values(graph: ir.Graph) -> set[ir.Value]:
    """The tensors of a graph that are computed from constants alone; nodes must be in order."""
    fixed = {value for value in (*graph.inputs, *graph.initializers.values()) if value.const_value is not None}
    for node in graph:
        if all(value is None or value in fixed for value in node.inputs):
            fixed.update(node.outputs)
    return fixed
