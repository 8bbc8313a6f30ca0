"""Put a kernel that has room for all results that there may be in a node's place, and cut its results to their number."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ....model.ir import add_constant, dims_of, dtype_of, is_op
from ....utils.optional import ir
from ..device.text import C_TYPES
from .data_dependent import data_dependent_values
from .rewrite import DOMAIN

__all__ = ["PADDED", "paddable", "room_of", "write_padded"]

PADDED = ("PaddedNonZero", "PaddedUnique", "Suppress")
"""Operators of this engine's domain with room for all results that there may be: they choose by values, which rounding would change."""


def paddable(graph: ir.Graph, op_type: str, max_values: int) -> list[ir.Node]:
    """Nodes of an operator that can have room for a result of each value of their tensor.

    What is left out: (1) scalars; (2) tensors that follow from dims alone, whose values are known when sizes are; (3) tensors of
    data-dependent dims; (4) dims that are unknown or 0, or more than ``max_values`` values beside free dims; (5) element types C lacks.
    """
    nodes = [node for node in graph if is_op(node, op_type)]
    dependent = data_dependent_values(graph) if nodes else set()
    return [
        node
        for node in nodes
        if node.outputs[0] in dependent  # case 2
        and dependent.isdisjoint(node.inputs)  # case 3
        and _has_room(node.inputs[0], max_values)  # cases 1, 4 and 5
    ]


def _has_room(x: ir.Value | None, max_values: int) -> bool:
    dims = dims_of(x)
    if x is None or not dims or None in dims:
        return False
    sizes = [dim for dim in dims if isinstance(dim, int)]
    return 0 not in sizes and math.prod(sizes) <= max_values and dtype_of(x) in C_TYPES


def room_of(x: ir.Value | None) -> list[Any]:
    """Dims of the room for a result of each value: their number, or with free dims those of the tensor."""
    dims = [dim if isinstance(dim, int) else str(dim) for dim in dims_of(x) or ()]
    return dims if any(isinstance(dim, str) for dim in dims) else [math.prod(map(int, dims))]


def write_padded(
    graph: ir.Graph,
    node: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: dict[str, Any],
    room: Sequence[Any],
    flat: Sequence[int],
    axis: int,
    whole: Collection[int] = (),
) -> None:
    """Replace a node, whose results' dims depend on values, by a kernel of the graph and a Slice for each result that is read.

    The kernel gives the node's results, of which the first along an axis are those of the node, and their number, (1,) int64, as its last
    output. The Slices end at that number, so that they and what reads them run node by node.

    Args:
        graph: The node's.
        node: What is replaced.
        op_type: The kernel's operator, of this engine's domain.
        inputs: What the kernel reads.
        attributes: The kernel's.
        room: Dims of each of the kernel's results: numbers and free dims.
        flat: Dims that a Reshape gives the results before they are cut, where they have more axes.
        axis: Along which they are cut.
        whole: Places of results that fill the room, and are not cut.
    """
    name, results = next(str(output.name) for output in node.outputs if _is_read(output)), list(node.outputs)
    kernel = ir.node(op_type, inputs, attributes, domain=DOMAIN, name=node.name, num_outputs=len(results) + 1)
    count, joined = kernel.outputs[-1], len(room) > len(flat)
    count.name, count.shape = f"{name}.count", ir.Shape([1])
    count.type = ir.TensorType(ir.DataType.INT64)
    graph.insert_before(node, kernel)
    dims = add_constant(graph, f"{name}.flat", np.array(flat)) if joined else None
    begin, along = (
        add_constant(graph, f"{name}.{what}", np.array([at])) for what, at in (("begin", 0), ("axis", axis))
    )
    cut_dims = ir.Shape([size if size > 0 else None for size in flat])
    for place, (old, value) in enumerate(zip(results, kernel.outputs, strict=False)):
        value.shape, value.type = ir.Shape(room), old.type
        if not _is_read(old):
            value.name = ""
            continue
        operands = [("Reshape", "reshape", [dims])] if joined else []
        operands += [] if place in whole else [("Slice", "cut", [begin, count, along])]
        final = value
        for index, (op, what, others) in enumerate(operands):
            final.name = f"{old.name}.rows{index}"
            made = ir.node(op, [final, *others], name=f"{old.name}.{what}")
            graph.insert_before(node, made)
            final = made.outputs[0]
            final.shape, final.type = cut_dims, old.type
        old.replace_all_uses_with(final, replace_graph_outputs=True)
        final.name, old.name = old.name, f"{old.name}.replaced"
    graph.remove(node, safe=True)


def _is_read(value: ir.Value) -> bool:
    return value.is_graph_output() or bool(value.uses())
