"""Put a kernel that has room for all results that there may be in a node's place, and cut its results to their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....model.ir import add_constant, swap
from ....utils.optional import ir
from .rewrite import DOMAIN

__all__ = ["PADDED", "write_padded"]

PADDED = ("PaddedNonZero", "Suppress")
"""Operators of this engine's domain with room for all results that there may be: they choose by values, which rounding would change."""


def write_padded(
    graph: ir.Graph,
    node: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: dict[str, Any],
    room: Sequence[Any],
    flat: Sequence[int],
    axis: int,
) -> None:
    """Replace a node, whose result's dims depend on values, by a kernel of the graph and a Slice.

    The kernel gives int64: results, of which the first along an axis are those of the node, and their number, (1,). The Slice ends
    at that number, so that it and what reads it run node by node.

    Args:
        graph: The node's.
        node: Its one output is int64.
        op_type: The kernel's operator, of this engine's domain.
        inputs: What the kernel reads.
        attributes: The kernel's.
        room: Dims of the kernel's results: numbers and free dims.
        flat: Dims that a Reshape gives the results before they are cut, where they have more axes.
        axis: Along which they are cut.
    """
    name = str(node.outputs[0].name)
    kernel = ir.node(op_type, inputs, attributes, domain=DOMAIN, name=node.name, num_outputs=2)
    nodes, count = [kernel], kernel.outputs[1]
    kernel.outputs[0].shape, count.shape = ir.Shape(room), ir.Shape([1])
    cut_dims = [size if size > 0 else None for size in flat]
    if len(room) > len(flat):
        dims = add_constant(graph, f"{name}.flat", np.array(flat))
        nodes.append(ir.node("Reshape", [kernel.outputs[0], dims], name=f"{name}.reshape"))
        nodes[-1].outputs[0].shape = ir.Shape(cut_dims)
    begin, along = (
        add_constant(graph, f"{name}.{what}", np.array([at])) for what, at in (("begin", 0), ("axis", axis))
    )
    nodes.append(ir.node("Slice", [nodes[-1].outputs[0], begin, count, along], name=f"{name}.cut"))
    for index, value in enumerate(value for each in nodes for value in each.outputs):
        value.name, value.type = f"{name}.rows{index}", ir.TensorType(ir.DataType.INT64)
    graph.insert_before(node, nodes)
    result = nodes[-1].outputs[0]
    swap(graph, [node], result)
    result.shape = ir.Shape(cut_dims)
