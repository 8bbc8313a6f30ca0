"""DepthToSpace behind a convolution → into it: blocks of pixels on the way to memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ....model.ir import array_of, dims_of, is_op, only_read_by, operand, set_attributes, swap
from ....utils.override import override
from .rewrite import Rewrite, convolution_before, has_residual, has_rows, weight_dims

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["FuseBlocks"]

_RUN = 16
"""Channels that a thread of a convolution writes side by side, at most."""


@dataclass(frozen=True)
class _Match:
    """The convolution, the nodes that go, the side of a block, and what is cut off: above, left, below, right."""

    conv: ir.Node
    nodes: list[ir.Node]
    side: int
    cut: list[int]


class FuseBlocks(Rewrite[_Match]):
    """DepthToSpace behind a convolution → into it, with a Slice that cuts borders, as a transposed convolution is written.

    Where a concat follows, the values are written there at once.

    What does not match: (1) a convolution that something else reads too; (2) blocks whose pixels' channels lie apart (CRD), or
    are not multiples of 16; (3) a convolution with a pool, a reorg or a residual; (4) one of rows.
    """

    name: ClassVar[str] = "blocks"
    needs: ClassVar[tuple[str, ...]] = ("DepthToSpace",)

    @override
    def match(self, node: ir.Node) -> _Match | None:
        conv = convolution_before(node) if is_op(node, "DepthToSpace") else None
        if conv is None or node.attributes.get_string("mode", "DCR") != "DCR":  # cases 1 and 2
            return None
        at, side = conv.attributes, node.attributes.get_int("blocksize", 1)
        other = at.get_int("pool", 0) or at.get_int("reorg", 0) or has_residual(conv) or has_rows(conv)  # cases 3 and 4
        if other or side < 2 or weight_dims(conv)[0] % (_RUN * side**2):  # case 2
            return None
        reader = next((use.node for use in node.outputs[0].uses()), None)
        cut = _cut(reader) if reader is not None and only_read_by(node, reader) else None
        return (
            _Match(conv, [node], side, [0] * 4)
            if reader is None or cut is None
            else _Match(conv, [node, reader], side, cut)
        )

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Match) -> None:
        set_attributes(match.conv, {"blocks": match.side, "cut": match.cut})
        swap(graph, match.nodes, match.conv.outputs[0])


def _cut(node: ir.Node) -> list[int] | None:
    """How many pixels a Slice leaves out on each side of images; None for other nodes, and other Slices."""
    x, y = (dims_of(value) for value in (node.inputs[0], node.outputs[0]))
    starts, ends, axes, steps = (array_of(operand(node, place)) for place in range(1, 5))
    if not is_op(node, "Slice") or starts is None or ends is None or axes is None or not x or not y or len(x) != 4:
        return None
    if (operand(node, 4) is not None and (steps is None or (steps != 1).any())) or not all(
        isinstance(side, int) for side in (*x[2:], *y[2:])
    ):
        return None
    begins = dict(zip((int(axis) % 4 for axis in axes), map(int, starts), strict=True))
    if not begins.keys() <= {2, 3}:
        return None
    top, left = (range(x[axis])[begins.get(axis, 0) :].start for axis in (2, 3))
    return [top, left, x[2] - y[2] - top, x[3] - y[3] - left]
