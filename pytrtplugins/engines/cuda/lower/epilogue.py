"""Standard operators → fused nodes of this engine's own domain: a convolution with its bias, activation and residual."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ....passes import Pass, PassResult
from ....utils.optional import require

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "DOMAIN",
    "FuseActivations",
    "FuseConvolutions",
    "FuseResiduals",
    "has_residual",
    "is_op",
    "scale_of",
    "swap",
]

DOMAIN = "pytrtplugins.cuda"
"""Of the fused nodes. ``Conv`` reads x, weights, bias, and optionally a residual and the weights' scales; see `FuseConvolutions`."""


class FuseConvolutions(Pass):
    """Conv → this engine's ``Conv``, which has a bias always and no padding rule but four numbers.

    Inputs: x, weights (K, C / group, R, S), bias (K), residual or nothing, scales of the weights (K) or nothing.
    Attributes: ``strides``, ``pads`` (top, left, bottom, right), ``dilations``, ``group``; ``activation`` (``"linear"``,
    ``"leaky"``, ``"clip"``, ``"logistic"``) with ``bounds`` (slope, or lowest and highest); the same behind the residual in
    ``residual_activation``, ``residual_bounds``; ``pool`` 1: the largest of each 2x2 pixels behind all that; ``reorg``: stride
    of darknet's reorg behind all that, or 0; ``image`` 1: x is the network's input, float32 and linear; for int8
    ``x_scale``, ``residual_scale`` and ``y_scale``, 0 where the tensor is float.
    """

    name: ClassVar[str] = "convolutions"

    def call(self, model: ir.Model) -> PassResult:
        """Replace in place."""
        modified = False
        for node in list(model.graph):
            if is_op(node, "Conv") and _is_2d(node):
                modified |= _fuse_convolution(model.graph, node)
        return PassResult(model, modified)


class FuseActivations(Pass):
    """LeakyRelu, Relu, Clip, Sigmoid behind a convolution that nothing else reads → into it, or behind its residual."""

    name: ClassVar[str] = "activations"

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place."""
        modified = False
        for node in list(model.graph):
            found = _activation(node)
            conv = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
            if found is None or conv is None or not is_op(conv, "Conv", DOMAIN) or not only_read_by(conv, node):
                continue
            place = "residual_activation" if has_residual(conv) else "activation"
            if conv.attributes.get_string(place) == "linear" and not scale_of(conv, "y_scale"):
                set_attributes(conv, {place: found[0], place.replace("activation", "bounds"): found[1]})
                swap(model.graph, [node], conv.outputs[0])
                modified = True
        return PassResult(model, modified)


class FuseResiduals(Pass):
    """Add behind a convolution that nothing else reads, of a tensor of the same dims → into the convolution."""

    name: ClassVar[str] = "residuals"

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place."""
        modified = False
        order = {node: index for index, node in enumerate(model.graph)}
        for add in list(model.graph):
            if not is_op(add, "Add") or any(value is None or constant(value) is not None for value in add.inputs):
                continue
            sides = [value for value in add.inputs if value is not None]
            if sides[0].shape is None or sides[0].shape != sides[1].shape or sides[0] is sides[1]:
                continue
            sides.sort(key=lambda value: -order.get(value.producer(), -1))  # type: ignore[arg-type]
            conv, residual = sides[0].producer(), sides[1]
            if conv is None or not is_op(conv, "Conv", DOMAIN) or has_residual(conv) or not only_read_by(conv, add):
                continue
            if residual.dtype != sides[0].dtype or scale_of(conv, "y_scale"):
                continue
            conv.resize_inputs(max(4, len(conv.inputs)))
            conv.replace_input_with(3, residual)
            swap(model.graph, [add], conv.outputs[0])
            modified = True
        return PassResult(model, modified)


# -- what other files share ------------------------------------------------------------------------------------------------


def is_op(node: ir.Node | None, op_type: str, domain: str = "") -> bool:
    """Whether a node is of this type and domain."""
    return node is not None and node.op_type == op_type and node.domain == domain


def only_read_by(node: ir.Node, reader: ir.Node) -> bool:
    """Whether a node's only output has one reader, and is no output of the model."""
    output = node.outputs[0]
    return [use.node for use in output.uses()] == [reader] and not output.is_graph_output()


def has_residual(conv: ir.Node) -> bool:
    """Whether a fused convolution adds a tensor."""
    return len(conv.inputs) > 3 and conv.inputs[3] is not None


def constant(value: ir.Value | None) -> Any:
    """A constant's NumPy array; None for what is computed or absent."""
    if value is None:
        return None
    tensor = require("onnx_ir", extra="onnx", feature="engine 'cuda'").convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def set_attributes(node: ir.Node, values: dict[str, Any]) -> None:
    """Set attributes, of whatever kind."""
    onnx_ir = require("onnx_ir", extra="onnx")
    for attribute in onnx_ir.convenience.convert_attributes(values):
        node.attributes[attribute.name] = attribute


def scale_of(node: ir.Node, name: str) -> float:
    """A scale among a fused node's attributes; 0 where it has none."""
    attribute = node.attributes.get(name)
    return 0.0 if attribute is None else attribute.as_float()


def swap(graph: ir.Graph, nodes: Iterable[ir.Node], value: ir.Value) -> None:
    """Let a value stand for the first output of the last of the nodes, under its name; remove the nodes, last first."""
    nodes = list(nodes)
    after = nodes[-1].outputs[0]
    name, shape, kind = after.name, after.shape, after.type
    after.replace_all_uses_with(value, replace_graph_outputs=True)
    for node in reversed(nodes):
        graph.remove(node, safe=True)
    value.name, value.shape, value.type = name, shape, kind


def add_constant(graph: ir.Graph, name: str, array: Any) -> ir.Value:
    """A new initializer under a free name."""
    onnx_ir = require("onnx_ir", extra="onnx")
    while name in graph.initializers:
        name += "_"
    tensor = onnx_ir.tensor(np.ascontiguousarray(array), name=name)
    value: ir.Value = onnx_ir.Value(
        name=name, shape=tensor.shape, type=onnx_ir.TensorType(tensor.dtype), const_value=tensor
    )
    graph.register_initializer(value)
    return value


# -- inside ----------------------------------------------------------------------------------------------------------------


def _is_2d(node: ir.Node) -> bool:
    weights = node.inputs[1]
    return weights is not None and weights.shape is not None and len(weights.shape) == 4


def _weight_dims(node: ir.Node) -> tuple[int, ...]:
    """(K, C / group, R, S)."""
    shape = None if node.inputs[1] is None else node.inputs[1].shape
    return () if shape is None else tuple(int(str(side)) for side in shape)


def _pads(node: ir.Node, kernel: tuple[int, ...], strides: list[int], dilations: list[int]) -> list[int] | None:
    """Four numbers; None where SAME needs dims that are unknown."""
    rule = node.attributes.get_string("auto_pad", "NOTSET")
    if rule in ("NOTSET", "VALID"):
        return [int(pad) for pad in node.attributes.get_ints("pads", [0] * 4)] if rule == "NOTSET" else [0] * 4
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    sides = [side for side in list(shape)[2:] if isinstance(side, int)] if shape is not None else []
    if len(sides) != 2:
        return None
    totals = [
        max((-(-side // stride) - 1) * stride + (size - 1) * dilation + 1 - side, 0)
        for side, size, stride, dilation in zip(sides, kernel, strides, dilations, strict=True)
    ]
    less = [total // 2 for total in totals]
    more = [total - half for total, half in zip(totals, less, strict=True)]
    return less + more if rule == "SAME_UPPER" else more + less


def _fuse_convolution(graph: ir.Graph, node: ir.Node) -> bool:
    onnx_ir = require("onnx_ir", extra="onnx")
    filters, *_, height, width = _weight_dims(node)
    kernel = height, width
    strides = list(node.attributes.get_ints("strides", [1, 1]))
    dilations = list(node.attributes.get_ints("dilations", [1, 1]))
    pads = _pads(node, kernel, strides, dilations)
    if pads is None:
        return False
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        bias = add_constant(graph, f"{node.outputs[0].name}.bias", np.zeros(filters, np.float32))
    attributes = {
        "strides": strides, "pads": pads, "dilations": dilations, "group": node.attributes.get_int("group", 1),
        "activation": "linear", "bounds": [0.0, 0.0], "residual_activation": "linear", "residual_bounds": [0.0, 0.0],
        "x_scale": 0.0, "residual_scale": 0.0, "y_scale": 0.0, "pool": 0, "reorg": 0, "image": 0,
    }  # fmt: skip
    made = onnx_ir.node("Conv", [node.inputs[0], node.inputs[1], bias], attributes, domain=DOMAIN, name=node.name)
    graph.insert_before(node, made)
    swap(graph, [node], made.outputs[0])
    return True


def _activation(node: ir.Node) -> tuple[str, list[float]] | None:
    if node.domain:
        return None
    if node.op_type == "LeakyRelu":
        return "leaky", [float(node.attributes.get_float("alpha", 0.01)), 0.0]
    if node.op_type == "Relu":
        return "leaky", [0.0, 0.0]
    if node.op_type == "Sigmoid":
        return "logistic", [0.0, 0.0]
    if node.op_type == "Clip":
        bounds = [constant(value) for value in node.inputs[1:3]]
        if len(bounds) == 2 and all(bound is not None and bound.size == 1 for bound in bounds):
            return "clip", [float(bound.reshape(())) for bound in bounds]
    return None
