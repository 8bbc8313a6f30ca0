"""Unique → a kernel of the graph with room for all values; of its results only their number is read back."""

from __future__ import annotations

import math
from typing import ClassVar

from ....model.ir import dims_of, dtype_of, is_op
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from ..device.text import C_TYPES
from .data_dependent import data_dependent_values
from .padded_results import write_padded

__all__ = ["WriteUniques"]

_MAX_VALUES = 1 << 14
"""Of a tensor without its free dims; one block sorts them."""
_INVERSE = 2
"""The output that has as many numbers as there are values."""


class WriteUniques(Pass):
    """Unique of all values → ``PaddedUnique`` and a Slice for each result.

    ``PaddedUnique`` has the attribute ``sorted``. It gives the results of Unique, with room for as many values as the tensor has, of which
    the first are those of the node, and their number, (1,) int64. All Slices end at that number, so that they and what reads them run node
    by node, as before; the inverse indices are as many as there are values, and need none. With free dims the results have the tensor's
    dims, and a Reshape stands behind each.

    What does not match: (1) an axis of a tensor that has others; (2) scalars; (3) tensors that follow from dims alone, whose values are
    known when sizes are; (4) tensors of data-dependent dims; (5) dims that are unknown or 0, or too many values; (6) element types that C
    lacks.
    """

    name: ClassVar[str] = "uniques"

    @override
    def call(self, model: ir.Model) -> PassResult:
        nodes = [node for node in model.graph if is_op(node, "Unique")]
        dependent = data_dependent_values(model.graph) if nodes else set()
        matches = [
            node
            for node in nodes
            if node.outputs[0] in dependent and dependent.isdisjoint(node.inputs) and _matches(node)  # cases 3 and 4
        ]
        for node in matches:
            dims = [dim if isinstance(dim, int) else str(dim) for dim in dims_of(node.inputs[0]) or ()]
            room = dims if any(isinstance(dim, str) for dim in dims) else [math.prod(map(int, dims))]
            attributes = {"sorted": node.attributes.get_int("sorted", 1)}
            write_padded(model.graph, node, "PaddedUnique", node.inputs, attributes, room, (-1,), 0, whole=(_INVERSE,))
        return PassResult(model, bool(matches))


def _matches(node: ir.Node) -> bool:
    x = node.inputs[0]
    dims = dims_of(x)
    if x is None or not dims or None in dims or ("axis" in node.attributes and len(dims) > 1):  # cases 1, 2 and 5
        return False
    sizes = [dim for dim in dims if isinstance(dim, int)]
    return 0 not in sizes and math.prod(sizes) <= _MAX_VALUES and dtype_of(x) in C_TYPES  # cases 5 and 6
