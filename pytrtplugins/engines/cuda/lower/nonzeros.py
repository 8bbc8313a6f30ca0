"""NonZero → a kernel of the graph with room for the places of all values; of its results only their number is read back."""

from __future__ import annotations

from typing import ClassVar

from ....model.ir import dims_of
from ....passes import Pass, PassResult
from ....utils.optional import ir
from ....utils.override import override
from .padded_results import paddable, room_of, write_padded

__all__ = ["WriteNonZeros"]

_MAX_VALUES = 1 << 21
"""Of a tensor without its free dims; each has 8 bytes of results for each axis."""


class WriteNonZeros(Pass):
    """NonZero → ``PaddedNonZero`` and a Slice.

    ``PaddedNonZero`` gives (rank, values) int64, of which the first columns are the places of the values that are not zero, in the order
    of the values, and the number of these columns, (1,) int64. The Slice ends at that number, so that it and what reads it run node by
    node, as they did before. With free dims the columns are (rank, *dims), and a Reshape stands behind them.

    What does not match is left out by `paddable`.
    """

    name: ClassVar[str] = "nonzeros"

    @override
    def call(self, model: ir.Model) -> PassResult:
        nodes = paddable(model.graph, "NonZero", _MAX_VALUES)
        for node in nodes:
            rank = len(dims_of(node.inputs[0]) or ())
            room = [rank, *room_of(node.inputs[0])]
            write_padded(model.graph, node, "PaddedNonZero", node.inputs, {}, room, (rank, -1), 1)
        return PassResult(model, bool(nodes))
