"""What stands around convolutions: the pool or reorg behind one, and the network's input before the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ....layers import Reorg
from ....passes import Pass, PassResult
from ....plugin.onnx_node import from_node, is_plugin_node
from ....utils.optional import require
from .epilogue import DOMAIN, constant, has_residual, is_op, only_read_by, scale_of, set_attributes, swap

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["FusePools", "FuseReorgs", "FuseStem"]

_MAX_CHANNELS = 4
_FILTERS = (16, 32, 48, 64)


class FusePools(Pass):
    """MaxPool of 2x2 pixels behind a convolution that nothing else reads → into it: its whole output is never written.

    Pooling and rounding commute with every activation that is fused, since none of them ever falls. Where no kernel does both,
    two run, through memory that is shared by all layers; see `UnfusedProvider`.
    """

    name: ClassVar[str] = "pools"

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place."""
        modified = False
        for node in list(model.graph):
            conv = node.inputs[0].producer() if is_op(node, "MaxPool") and node.inputs[0] is not None else None
            if conv is None or not is_op(conv, "Conv", DOMAIN) or not only_read_by(conv, node):
                continue
            if _halves(node) and not _falls(conv) and not has_residual(conv):
                set_attributes(conv, {"pool": 1})
                swap(model.graph, [node], conv.outputs[0])
                modified = True
        return PassResult(model, modified)


class FuseReorgs(Pass):
    """darknet's reorg behind a convolution that nothing else reads → into it: a permutation on the way to memory.

    Where a concat follows, the values are written there at once; the plugin would have to be given memory without gaps.
    """

    name: ClassVar[str] = "reorg"

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place."""
        modified = False
        for node in list(model.graph):
            conv = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
            if conv is None or not is_op(conv, "Conv", DOMAIN) or not only_read_by(conv, node):
                continue
            stride = _reorg_stride(node)
            if stride and not conv.attributes.get_int("pool", 0) and not has_residual(conv):
                set_attributes(conv, {"reorg": stride})
                swap(model.graph, [node], conv.outputs[0])
                modified = True
        return PassResult(model, modified)


class FuseStem(Pass):
    """A first 3x3 convolution of up to 4 channels reads the network's input itself: casts, layout and QuantizeLinear go."""

    name: ClassVar[str] = "stem"

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place."""
        modified = False
        for node in list(model.graph):
            if not is_op(node, "Conv", DOMAIN) or not _is_stem(node):
                continue
            x = node.inputs[0]
            producer = None if x is None else x.producer()
            if x is not None and producer is None and x.is_graph_input() and not scale_of(node, "x_scale"):
                set_attributes(node, {"image": 1})
                modified = True
            elif producer is not None and is_op(producer, "QuantizeLinear") and only_read_by(producer, node):
                modified |= _read_through(model.graph, producer, node)
            elif producer is not None and is_op(producer, "Cast") and only_read_by(producer, node):
                modified |= _read_before_cast(model.graph, producer, node)
        return PassResult(model, modified)


def _halves(pool: ir.Node) -> bool:
    """Whether a pool takes 2x2 pixels each, without any left over."""
    at = pool.attributes
    shape = None if pool.inputs[0] is None else pool.inputs[0].shape
    sides = [side for side in list(shape)[2:] if isinstance(side, int)] if shape is not None else []
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
    proto = require("onnx_ir", extra="onnx").to_proto(node)
    plugin = from_node(proto) if node.op_type == "Reorg" and is_plugin_node(proto) else None
    return plugin.stride if isinstance(plugin, Reorg) and not plugin.reverse else 0


def _falls(conv: ir.Node) -> bool:
    """Whether the activation is one that falls somewhere."""
    slopes = list(conv.attributes.get_floats("bounds", [0.0]))
    return conv.attributes.get_string("activation", "linear") == "leaky" and slopes[0] < 0


def _is_stem(conv: ir.Node) -> bool:
    at, weights = conv.attributes, conv.inputs[1]
    dims: Any = None if weights is None or weights.shape is None else tuple(weights.shape)
    return (
        dims is not None
        and dims[2:] == (3, 3)
        and dims[1] <= _MAX_CHANNELS
        and dims[0] in _FILTERS
        and [list(at.get_ints(name, [0])) for name in ("strides", "dilations", "pads")] == [[1, 1], [1, 1], [1] * 4]
        and at.get_int("group", 1) == 1
        and at.get_string("activation", "linear") in ("linear", "leaky")
        and not has_residual(conv)
    )


def _read_through(graph: ir.Graph, quantize: ir.Node, conv: ir.Node) -> bool:
    """Let a convolution of codes read the float input, and quantize it on the way."""
    x, scale = quantize.inputs[0], constant(quantize.inputs[1])
    zero = constant(quantize.inputs[2]) if len(quantize.inputs) > 2 else None
    if x is None or not x.is_graph_input() or scale is None or scale.size != 1 or zero is None or zero.any():
        return False
    if float(scale.reshape(())) != scale_of(conv, "x_scale"):
        return False
    conv.replace_input_with(0, x)
    set_attributes(conv, {"image": 1})
    graph.remove(quantize, safe=True)
    return True


def _read_before_cast(graph: ir.Graph, cast: ir.Node, conv: ir.Node) -> bool:
    """Let a convolution of float16 read the float32 input, and round it on the way."""
    x, types = cast.inputs[0], require("onnx_ir", extra="onnx").DataType
    if x is None or not x.is_graph_input() or (x.dtype, cast.outputs[0].dtype) != (types.FLOAT, types.FLOAT16):
        return False
    conv.replace_input_with(0, x)
    set_attributes(conv, {"image": 1})
    graph.remove(cast, safe=True)
    return True
