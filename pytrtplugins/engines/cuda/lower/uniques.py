"""Unique → a kernel of the graph with room for all values; of its results only their number is read back."""

from __future__ import annotations

from typing import ClassVar

from ....model.ir import dims_of
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .padded_results import paddable, room_of, write_padded

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

    What does not match: an axis of a tensor that has others, and what `paddable` leaves out.
    """

    name: ClassVar[str] = "uniques"

    @override
    def call(self, model: ir.Model) -> PassResult:
        nodes = [node for node in paddable(model.graph, "Unique", _MAX_VALUES) if _takes_all_values(node)]
        for node in nodes:
            room, attributes = room_of(node.inputs[0]), {"sorted": node.attributes.get_int("sorted", 1)}
            write_padded(model.graph, node, "PaddedUnique", node.inputs, attributes, room, (-1,), 0, whole=(_INVERSE,))
        return PassResult(model, bool(nodes))


def _takes_all_values(node: ir.Node) -> bool:
    return "axis" not in node.attributes or len(dims_of(node.inputs[0]) or ()) == 1
