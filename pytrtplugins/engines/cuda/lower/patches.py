"""Gather the windows of a convolution with few channels (im2col), so that channels fill what a kernel reads at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....model.ir import add_constant, array_of, dims_of, is_op, only_read_by, set_attributes
from ....utils.optional import ir
from .rewrite import DOMAIN, Rewrite, codes_scale, has_rows, scale_of, weight_dims

__all__ = ["GatherPatches", "GatherWindows"]

_MAX_CHANNELS = 4
_MAX_OVERLAP = 4
"""How often a column of the image may be copied, at most: kernel width / stride."""
_MIN_SIDE, _MOST_CHANNELS = 8, 32
"""Of a window that becomes one pixel: below, the taps are few; beyond, each of them fills what a kernel reads at once."""


@dataclass(frozen=True)
class _Match:
    """The network's input that a convolution reads, the QuantizeLinear between them or None, and height and width."""

    image: ir.Value
    producer: ir.Node | None
    sides: tuple[int, int]


class GatherPatches(Rewrite[_Match]):
    """A convolution of a network's input of up to 4 channels → ``Patches``, then a convolution whose channels are a window's columns.

    A pixel of 3 channels fills a fifth to a half of 16 bytes, and each tap of a filter is a step of its own. Behind ``Patches``
    a 7x7 convolution has 7 taps of 21 channels; one whose windows do not overlap, as a vision transformer's, is a product of a
    matrix with rows. The copy takes the place of the one that changes the layout; it rounds to codes as well.

    What does not match: (1) a convolution of groups, of rows, of one column, or with a dilation across; (2) one of more
    channels; (3) one whose windows overlap so much that the copy is large; (4) one that reads what another layer gives, or an
    image of another type than float32, or of free sizes; (5) one behind a QuantizeLinear that something else reads too, or of
    another scale, or around another zero point, than its own.
    """

    name: ClassVar[str] = "patches"
    needs: ClassVar[tuple[str, ...]] = ("Conv",)

    def match(self, node: ir.Node) -> _Match | None:
        """The image that a convolution reads, if the convolution can be rewritten."""
        if not is_op(node, "Conv", DOMAIN) or has_rows(node) or node.attributes["image"].as_int():
            return None
        at, dims = node.attributes, weight_dims(node)
        if not dims or dims[3] == 1 or at["group"].as_int() != 1 or at["dilations"].as_ints()[1] != 1:  # case 1
            return None
        if dims[1] > _MAX_CHANNELS or dims[3] > _MAX_OVERLAP * at["strides"].as_ints()[1]:  # cases 2 and 3
            return None
        if array_of(node.inputs[1]) is None:
            return None
        return _match_image(node)

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Match) -> None:
        """Insert ``Patches`` before the convolution, and bring the weights into the order of its channels."""
        at, (filters, channels, rows, columns) = node.attributes, weight_dims(node)
        (row_stride, column_stride), (top, left, bottom, right) = at["strides"].as_ints(), at["pads"].as_ints()
        height, width = match.sides
        is_disjoint = row_stride >= rows and at["dilations"].as_ints()[0] == 1  # windows share no rows
        taps, patch_rows = (rows, (height + top + bottom - rows) // row_stride + 1) if is_disjoint else (1, height)
        window: dict[str, Any] = {
            "kernel": [taps, columns],
            "strides": [row_stride if is_disjoint else 1, column_stride],
            "begin": [top if is_disjoint else 0, left],
            "y_scale": scale_of(node, "x_scale"),
        }
        patches = ir.node("Patches", [match.image], window, domain=DOMAIN, name=f"{node.name}.patches")
        read, result = node.inputs[0], patches.outputs[0]
        assert read is not None
        assert read.shape is not None
        assert read.dtype is not None
        result.name, result.type = f"{node.outputs[0].name}.patches", ir.TensorType(read.dtype)
        patch_columns = (width + left + right - columns) // column_stride + 1
        result.shape = ir.Shape([read.shape[0], taps * columns * channels, patch_rows, patch_columns])
        weights = array_of(node.inputs[1])
        assert weights is not None
        order = (0, 2, 3, 1) if is_disjoint else (0, 3, 1, 2)
        patch_weights = np.ascontiguousarray(weights.transpose(order)).reshape(
            filters, taps * columns * channels, rows // taps, 1
        )
        name = f"{node.outputs[0].name}.patches.weights"
        set_attributes(
            node,
            {
                "strides": [1, 1] if is_disjoint else [row_stride, 1],
                "pads": [0] * 4 if is_disjoint else [top, 0, bottom, 0],
            },
        )
        node.replace_input_with(0, result)
        node.replace_input_with(1, add_constant(graph, name, patch_weights))
        graph.insert_before(node, patches)
        if match.producer is not None:
            graph.remove(match.producer, safe=True)


class GatherWindows(Rewrite[int]):
    """A convolution of large square windows side by side → SpaceToDepth, and a convolution of single pixels.

    It is for what `GatherPatches` leaves: an image that another layer normalizes, or one of more channels. A kernel would
    take a step for each of the taps.

    What does not match: (1) windows of fewer than 8x8 pixels, or of more than 32 channels; (2) windows that overlap, are apart, or have
    a border; (3) groups; (4) sides that are unknown or no multiple of the window's.
    """

    name: ClassVar[str] = "windows"
    needs: ClassVar[tuple[str, ...]] = ("Conv",)

    def match(self, node: ir.Node) -> int | None:
        """The side of a window."""
        if not is_op(node, "Conv", DOMAIN) or has_rows(node) or node.attributes["image"].as_int():
            return None
        at, dims = node.attributes, weight_dims(node)
        if not dims or dims[2] < _MIN_SIDE or dims[1] > _MOST_CHANNELS or array_of(node.inputs[1]) is None:  # case 1
            return None
        side = dims[2]
        if dims[3] != side or list(at["strides"].as_ints()) != [side, side]:  # case 2
            return None
        if (
            any(at["pads"].as_ints()) or set(at["dilations"].as_ints()) != {1} or at["group"].as_int() != 1
        ):  # cases 2, 3
            return None
        sides = (dims_of(node.inputs[0]) or ())[2:]
        return side if sides and all(isinstance(each, int) and each % side == 0 for each in sides) else None  # case 4

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: int) -> None:
        """Insert SpaceToDepth before the convolution, and bring the weights into the order of its channels."""
        read, weights = node.inputs[0], array_of(node.inputs[1])
        assert read is not None
        assert weights is not None
        moved = ir.node("SpaceToDepth", [read], {"blocksize": match}, name=f"{node.name}.windows")
        result, dims = moved.outputs[0], dims_of(read)
        assert dims is not None
        result.name, result.type = f"{node.outputs[0].name}.windows", read.type
        sides = [int(side) // match for side in dims[2:]]
        result.shape = ir.Shape([read.shape[0], weights[0].size, *sides])  # type: ignore[index]
        pixels = np.ascontiguousarray(weights.transpose(0, 2, 3, 1)).reshape(len(weights), -1, 1, 1)
        set_attributes(node, {"strides": [1, 1]})
        node.replace_input_with(0, result)
        node.replace_input_with(1, add_constant(graph, f"{node.outputs[0].name}.windows.weights", pixels))
        graph.insert_before(node, moved)


def _match_image(node: ir.Node) -> _Match | None:
    """Match the network's input that a convolution reads, perhaps through a QuantizeLinear; None in cases 4 and 5."""
    read = node.inputs[0]
    producer = None if read is None else read.producer()
    image = read if producer is None else producer.inputs[0]
    if image is None or not image.is_graph_input() or image.dtype != ir.DataType.FLOAT:
        return None
    dims = dims_of(image) or ()
    if len(dims) != 4 or not all(isinstance(side, int) and side > 0 for side in dims[1:]):  # case 4
        return None
    scale = scale_of(node, "x_scale")
    if producer is not None and not (
        only_read_by(producer, node) and scale and codes_scale(producer) == scale
    ):  # case 5
        return None
    return None if producer is None and scale else _Match(image, producer, (int(dims[2]), int(dims[3])))
