"""NonZero → a kernel of the graph with room for the places of all values; of its results only their number is read back."""

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

__all__ = ["WriteNonZeros"]

_MAX_VALUES = 1 << 21
"""Of a tensor without its free dims; each has 8 bytes of results for each axis."""


class WriteNonZeros(Pass):
    """NonZero → ``PaddedNonZero`` and a Slice.

    ``PaddedNonZero`` gives (rank, values) int64, of which the first columns are the places of the values that are not zero, in the order
    of the values, and the number of these columns, (1,) int64. The Slice ends at that number, so that it and what reads it run node by
    node, as they did before. With free dims the columns are (rank, *dims), and a Reshape stands behind them.

    What does not match: (1) scalars; (2) tensors that follow from dims alone, whose values are known when sizes are; (3) tensors of
    data-dependent dims; (4) dims that are unknown or 0, or too many values; (5) element types that C lacks.
    """

    name: ClassVar[str] = "nonzeros"

    @override
    def call(self, model: ir.Model) -> PassResult:
        nodes = [node for node in model.graph if is_op(node, "NonZero")]
        dependent = data_dependent_values(model.graph) if nodes else set()
        matches = [
            node
            for node in nodes
            if node.outputs[0] in dependent and dependent.isdisjoint(node.inputs) and _matches(node)  # cases 2 and 3
        ]
        for node in matches:
            dims = dims_of(node.inputs[0]) or ()
            free = [dim if isinstance(dim, int) else str(dim) for dim in dims]
            room = [len(dims), *(free if any(isinstance(dim, str) for dim in free) else [math.prod(dims)])]
            write_padded(model.graph, node, "PaddedNonZero", node.inputs, {}, room, (len(dims), -1), 1)
        return PassResult(model, bool(matches))


def _matches(node: ir.Node) -> bool:
    x = node.inputs[0]
    dims = dims_of(x)
    if x is None or not dims or None in dims:  # cases 1 and 4
        return False
    sizes = [dim for dim in dims if isinstance(dim, int)]
    return 0 not in sizes and math.prod(sizes) <= _MAX_VALUES and dtype_of(x) in C_TYPES  # cases 4 and 5
