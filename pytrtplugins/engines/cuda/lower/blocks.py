"""DepthToSpace behind a convolution → into it: blocks of pixels on the way to memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ....model.ir import is_op, set_attributes, swap
from ....utils.override import override
from .rewrite import Rewrite, convolution_before, has_residual, has_rows, weight_dims

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["FuseBlocks"]

_RUN = 16
"""Channels that a thread of a convolution writes side by side, at most."""


class FuseBlocks(Rewrite["tuple[ir.Node, int]"]):
    """DepthToSpace behind a convolution → into it, as a transposed convolution is written.

    Where a concat follows, the values are written there at once.

    What does not match: (1) a convolution that something else reads too; (2) blocks whose pixels' channels lie apart (CRD), or
    are not multiples of 16; (3) a convolution with a pool, a reorg or a residual; (4) one of rows; (5) blocks that are only cut
    behind, by a Slice, so that they are copied anyway.
    """

    name: ClassVar[str] = "blocks"
    needs: ClassVar[tuple[str, ...]] = ("DepthToSpace",)

    @override
    def match(self, node: ir.Node) -> tuple[ir.Node, int] | None:
        """The convolution, and the side of a block."""
        conv = convolution_before(node) if is_op(node, "DepthToSpace") else None
        if conv is None or node.attributes.get_string("mode", "DCR") != "DCR":  # cases 1 and 2
            return None
        at, side = conv.attributes, node.attributes.get_int("blocksize", 1)
        other = at.get_int("pool", 0) or at.get_int("reorg", 0) or has_residual(conv) or has_rows(conv)  # cases 3 and 4
        is_cut = (
            all(is_op(use.node, "Slice") for use in node.outputs[0].uses()) and not node.outputs[0].is_graph_output()
        )
        if other or is_cut or side < 2 or weight_dims(conv)[0] % (_RUN * side**2):  # cases 5 and 2
            return None
        return conv, side

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[ir.Node, int]) -> None:
        conv, side = match
        set_attributes(conv, {"blocks": side})
        swap(graph, [node], conv.outputs[0])
