"""Find the coordinates of GridSample and RoiAlign, which stay float32 in a float16 network for accuracy below a pixel."""

from __future__ import annotations

from ....model.ir import is_op, operand
from ....model.proto import node_name
from ....utils.optional import ir
from .moves import is_mover
from .operations import is_elementwise

__all__ = ["coordinate_inputs", "coordinate_nodes"]


def coordinate_inputs(node: ir.Node) -> frozenset[int]:
    """Indices of a node's inputs that are coordinates."""
    return frozenset((1,)) if is_op(node, "GridSample") or is_op(node, "RoiAlign") else frozenset()


def coordinate_nodes(graph: ir.Graph) -> list[str]:
    """Names of the elementwise and data movement nodes that compute coordinates, back to the layers before them."""
    readers = ((node, place) for node in graph for place in coordinate_inputs(node))
    values, found = [operand(node, place) for node, place in readers], dict[str, None]()
    while values:
        value = values.pop()
        node = None if value is None else value.producer()
        if node is not None and node_name(node) not in found and (is_elementwise(node) or is_mover(node)):
            found[node_name(node)] = None
            values += node.inputs
    return list(found)
