"""Fuse DepthToSpace, and a Slice that crops its result, into the convolution before it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ....model.ir import add_constant, array_of, dims_of, is_op, only_read_by, operand, set_attributes, swap
from ....utils.optional import ir
from ....utils.override import override
from .rewrite import Rewrite, convolution_before, has_residual, has_rows, weight_dims

__all__ = ["FuseBlocks"]

_RUN = 16
"""Channels that a thread of a convolution writes side by side, at most."""


@dataclass(frozen=True)
class _Match:
    """The convolution, the fused nodes, the block size, the cropped pixels (top, left, bottom, right), and whether the mode is CRD."""

    conv: ir.Node
    nodes: list[ir.Node]
    side: int
    cut: list[int]
    apart: bool


class FuseBlocks(Rewrite[_Match]):
    """DepthToSpace behind a convolution → into it, with a Slice that cuts borders, as a transposed convolution is written.

    Where a concat follows, the values are written there at once.

    PyTorch's pixel shuffle keeps the pixels of a channel side by side (CRD): filters change places, so that it gives the channels
    of a pixel side by side.

    What does not match: (1) a convolution that something else reads too; (2) blocks whose pixels' channels are not multiples
    of 16; (3) a convolution with a pool, a reorg or a residual; (4) one of rows; (5) CRD behind groups, or constants that are
    not there.
    """

    name: ClassVar[str] = "blocks"
    needs: ClassVar[tuple[str, ...]] = ("DepthToSpace",)

    @override
    def match(self, node: ir.Node) -> _Match | None:
        conv = convolution_before(node) if is_op(node, "DepthToSpace") else None
        if conv is None:  # case 1
            return None
        at, side = conv.attributes, node.attributes.get_int("blocksize", 1)
        other = at.get_int("pool", 0) or at.get_int("reorg", 0) or has_residual(conv) or has_rows(conv)  # cases 3 and 4
        if other or side < 2 or weight_dims(conv)[0] % (_RUN * side**2):  # case 2
            return None
        apart = node.attributes.get_string("mode", "DCR") == "CRD"
        if apart and (
            at.get_int("group", 1) > 1 or any(array_of(value) is None for value in _filter_constants(conv))
        ):  # case 5
            return None
        nodes, cut = [node], [0] * 4
        reader = next((use.node for use in node.outputs[0].uses()), None)
        if reader is not None and only_read_by(node, reader) and (found := _cropped_pixels(reader)) is not None:
            nodes, cut = [node, reader], found
        return _Match(conv, nodes, side, cut, apart)

    @override
    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Match) -> None:
        conv = match.conv
        for value in _filter_constants(conv) if match.apart else ():
            array = array_of(value)
            rearranged = array.reshape(-1, match.side**2, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)
            for place in [place for place, read in enumerate(conv.inputs) if read is value]:
                conv.replace_input_with(place, add_constant(graph, f"{value.name}.turned", rearranged))
        set_attributes(conv, {"blocks": match.side, "cut": match.cut})
        swap(graph, match.nodes, conv.outputs[0])


def _filter_constants(conv: ir.Node) -> list[ir.Value]:
    """Inputs with one part per filter: weights, bias, the scales of quantized weights, slopes of PRelu."""
    return [value for value in map(partial(operand, conv), (1, 2, 4, 5)) if value is not None]


def _cropped_pixels(node: ir.Node) -> list[int] | None:
    """Pixels that a Slice crops (top, left, bottom, right); None for other nodes and other Slices."""
    x = dims_of(node.inputs[0]) or ()
    starts, ends, axes, steps = (array_of(operand(node, place)) for place in range(1, 5))
    if not is_op(node, "Slice") or len(x) != 4 or starts is None or ends is None or axes is None:
        return None
    plain = operand(node, 4) is None or (steps is not None and (steps == 1).all())
    cut = [0] * 4
    for axis, start, end in zip(axes.tolist(), starts.tolist(), ends.tolist(), strict=True):
        size, place = x[axis % 4], axis % 4 - 2
        if isinstance(size, int):
            taken = range(size)[start:end] or range(-1, 0)  # nothing is no image
            begin, behind = taken.start, size - taken.stop
        else:  # of an unknown size its ends alone say what is left out
            begin, behind = start, 0 if end >= np.iinfo(np.int32).max else -end
        if place < 0 or min(begin, behind) < 0:
            return None
        cut[place], cut[place + 2] = begin, behind
    return cut if plain else None
