"""What stands around convolutions: the pool or reorg behind one, and the network's input before the first."""

from __future__ import annotations

from typing import ClassVar

from ....layers import Reorg
from ....model.ir import array_of, dims_of, is_op, only_read_by, operand, set_attributes, swap
from ....plugin.onnx_node import from_node, is_plugin_node
from ....utils.optional import ir
from ..device.activation import ACTIVATIONS
from .rewrite import (
    DOMAIN,
    Rewrite,
    codes_scale,
    convolution_before,
    has_residual,
    has_rows,
    scale_of,
    weight_dims,
)

__all__ = ["FusePools", "FuseReorgs", "FuseStem"]

_MAX_CHANNELS = 4
_FILTERS = (16, 32, 48, 64)


class FusePools(Rewrite["ir.Node"]):
    """MaxPool of 2x2 pixels behind a convolution → into it: its whole output is never written.

    Pooling and rounding commute with every activation that is fused, since none of them ever falls. Where no kernel does both,
    two run, through memory that is shared by all layers; see `UnfusedProvider`.

    What does not match: (1) a convolution that something else reads too; (2) a pool of other windows, of padded borders, or of an
    odd number of rows or columns; (3) an activation that falls: leaky, prelu or hard_sigmoid of a negative slope, swish, gelu; (4) a
    convolution with a residual; (5) one of rows, whose output may have four axes too.
    """

    name: ClassVar[str] = "pools"
    needs: ClassVar[tuple[str, ...]] = ("Conv",)

    def match(self, node: ir.Node) -> ir.Node | None:
        """The convolution."""
        conv = convolution_before(node) if is_op(node, "MaxPool") else None
        if conv is None or not _halves(node) or _falls(conv) or has_residual(conv) or has_rows(conv):  # cases 1 to 5
            return None
        return conv

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: ir.Node) -> None:
        """Let the convolution pool."""
        set_attributes(match, {"pool": 1})
        swap(graph, [node], match.outputs[0])


class FuseReorgs(Rewrite["tuple[ir.Node, int]"]):
    """darknet's reorg behind a convolution → into it: a permutation on the way to memory.

    Where a concat follows, the values are written there at once; the plugin would have to be given memory without gaps.

    What does not match: (1) a convolution that something else reads too; (2) a reverse reorg; (3) a convolution with a pool;
    (4) one with a residual; (5) one of rows.
    """

    name: ClassVar[str] = "reorg"
    needs: ClassVar[tuple[str, ...]] = ("Reorg",)

    def match(self, node: ir.Node) -> tuple[ir.Node, int] | None:
        """The convolution, and the reorg's stride."""
        conv = convolution_before(node)
        stride = 0 if conv is None else _reorg_stride(node)
        if conv is None or not stride:  # cases 1 and 2
            return None
        other = conv.attributes.get_int("pool", 0) or has_residual(conv) or has_rows(conv)  # cases 3 to 5
        return None if other else (conv, stride)

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[ir.Node, int]) -> None:
        """Let the convolution permute."""
        conv, stride = match
        set_attributes(conv, {"reorg": stride})
        swap(graph, [node], conv.outputs[0])


class FuseStem(Rewrite["ir.Value"]):
    """A first 3x3 convolution of up to 4 channels reads the network's input itself: casts, layout and QuantizeLinear go.

    What does not match: (1) a convolution that the stem's kernel does not compute; (2) one that reads what another layer gives;
    (3) one behind a Cast or QuantizeLinear that something else reads too; (4) codes of another scale, or around another zero
    point, than the convolution's; (5) a Cast of other types than float32 to float16.
    """

    name: ClassVar[str] = "stem"
    needs: ClassVar[tuple[str, ...]] = ("Conv",)

    def match(self, node: ir.Node) -> ir.Value | None:
        """The network's input."""
        if not is_op(node, "Conv", DOMAIN) or not _is_stem(node) or node.inputs[0] is None:  # case 1
            return None
        producer = node.inputs[0].producer()
        read = [node.inputs[0]] if producer is None else producer.inputs[:1]
        x = read[0] if read else None
        if x is None or not x.is_graph_input():  # case 2
            return None
        if producer is None:
            return None if scale_of(node, "x_scale") else x
        if not only_read_by(producer, node):  # case 3
            return None
        if is_op(producer, "QuantizeLinear"):
            return x if codes_scale(producer) == scale_of(node, "x_scale") else None  # else case 4
        return x if _rounds_to_half(producer) else None

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: ir.Value) -> None:
        """Let the convolution read the input, and round or quantize it on the way."""
        producer = None if node.inputs[0] is None else node.inputs[0].producer()
        set_attributes(node, {"image": 1})
        if producer is not None:
            node.replace_input_with(0, match)
            graph.remove(producer, safe=True)


def _halves(pool: ir.Node) -> bool:
    """Whether a pool takes 2x2 pixels each, without any left over."""
    at = pool.attributes
    sides = [side for side in (dims_of(pool.inputs[0]) or ())[2:] if isinstance(side, int)]
    return (
        len(pool.outputs) == 1
        and [list(at.get_ints(name, [0])) for name in ("kernel_shape", "strides")] == [[2, 2], [2, 2]]
        and not any(at.get_ints("pads", [0]))
        and set(at.get_ints("dilations", [1])) == {1}
        and at.get_string("auto_pad", "NOTSET") in ("NOTSET", "VALID")
        and len(sides) == 2
        and not any(side % 2 for side in sides)
    )


def _reorg_stride(node: ir.Node) -> int:
    """The stride of a forward reorg; 0 for other nodes."""
    plugin = from_node(node) if node.op_type == "Reorg" and is_plugin_node(node) else None
    return plugin.stride if isinstance(plugin, Reorg) and not plugin.reverse else 0


def _falls(conv: ir.Node) -> bool:
    """Whether the activation is one that falls somewhere."""
    activation, slopes = conv.attributes.get_string("activation", "linear"), conv.attributes.get_floats("bounds", [0.0])
    if ACTIVATIONS[activation].gated:
        return True
    if activation == "prelu":
        return not bool((array_of(operand(conv, 5)) >= 0).all())
    return activation in ("leaky", "hard_sigmoid") and slopes[0] < 0


def _is_stem(conv: ir.Node) -> bool:
    at, dims = conv.attributes, weight_dims(conv)
    return (
        dims[2:] == (3, 3)
        and dims[1] <= _MAX_CHANNELS
        and dims[0] in _FILTERS
        and [list(at.get_ints(name, [0])) for name in ("strides", "dilations", "pads")] == [[1, 1], [1, 1], [1] * 4]
        and at.get_int("group", 1) == 1
        and at.get_string("activation", "linear") in ("linear", "leaky", "prelu")
        and not has_residual(conv)
    )


def _rounds_to_half(cast: ir.Node) -> bool:
    """Whether it is a Cast from float32 to float16."""
    types, x = ir.DataType, cast.inputs[0]
    if not is_op(cast, "Cast") or x is None:
        return False
    return (x.dtype, cast.outputs[0].dtype) == (types.FLOAT, types.FLOAT16)  # case 5 of `FuseStem`
