"""Q/DQ → int8 tensors: what only moves values moves codes, and convolutions take and give codes themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ....errors import PytrtpluginsError
from ....passes import Pass, PassResult
from ....plugin.onnx_node import from_node
from ....utils.optional import require
from .epilogue import DOMAIN, add_constant, constant, is_op, only_read_by, scale_of, set_attributes, swap

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["AbsorbInputScales", "AbsorbOutputScales", "FoldCasts", "FoldConstants", "MoveCodes"]

_MOVING = ("Concat", "Flatten", "MaxPool", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")


class MoveCodes(Pass):
    """DequantizeLinear before a node that only moves values → behind it; Q behind DQ of the same scale goes.

    Moving nodes are Concat, MaxPool, Reshape, Transpose and their like, nearest Resize, and plugins whose ``int8`` is
    ``"pass_through"``. Every tensor read has to have the same scale, and zero point 0.
    """

    name: ClassVar[str] = "int8-moves"

    def call(self, model: ir.Model) -> PassResult:
        """Move in place, from the inputs on."""
        modified = False
        for node in list(model.graph):
            if is_op(node, "QuantizeLinear"):
                modified |= _drop_pair(node)
            elif _moves(node):
                modified |= _move(model.graph, node)
        if modified:
            _remove_unused(model)
        return PassResult(model, modified)


class AbsorbInputScales(Pass):
    """Convolutions of dequantized codes with dequantized weights → convolutions of codes: integers are added."""

    name: ClassVar[str] = "int8-convolutions"

    def call(self, model: ir.Model) -> PassResult:
        """Absorb in place."""
        modified = False
        for node in list(model.graph):
            if is_op(node, "Conv", DOMAIN) and not scale_of(node, "x_scale"):
                modified |= _absorb_input(model.graph, node)
        if modified:
            _remove_unused(model)
        return PassResult(model, modified)


class FoldConstants(Pass):
    """DequantizeLinear of constants → constants: weights of layers that stay in float."""

    name: ClassVar[str] = "float-weights"

    def call(self, model: ir.Model) -> PassResult:
        """Fold in place."""
        modified = False
        for node in [node for node in model.graph if is_op(node, "DequantizeLinear")]:
            codes, steps = constant(node.inputs[0]), constant(node.inputs[1])
            if codes is None or steps is None:
                continue
            zero = constant(node.inputs[2]) if len(node.inputs) > 2 else None
            shape = [1] * codes.ndim
            if steps.size > 1:
                shape[node.attributes.get_int("axis", 1)] = steps.size
            shifted = codes.astype(np.float32) - (
                0 if zero is None else zero.astype(np.float32).reshape(shape if zero.size > 1 else ())
            )
            with np.errstate(over="ignore", invalid="ignore"):  # a scale may be infinite
                values = shifted * steps.astype(np.float32).reshape(shape if steps.size > 1 else ())
            name = node.outputs[0].name
            node.outputs[0].replace_all_uses_with(add_constant(model.graph, f"{name}.values", values))
            modified = True
        if modified:
            _remove_unused(model)
        return PassResult(model, modified)


class FoldCasts(Pass):
    """Cast of a constant → a constant: weights that are stored in half and computed with in float32."""

    name: ClassVar[str] = "constant-casts"

    def call(self, model: ir.Model) -> PassResult:
        """Fold in place."""
        folded = []
        for node in [node for node in model.graph if is_op(node, "Cast")]:
            values, output = constant(node.inputs[0]), node.outputs[0]
            if values is None or output.is_graph_output():
                continue
            kind = require("onnx_ir", extra="onnx").DataType(node.attributes.get_int("to"))
            with np.errstate(over="ignore", invalid="ignore"):  # ONNX leaves open what becomes of NaN
                found = values.astype(kind.numpy())
            cast = add_constant(model.graph, f"{output.name}.values", found)
            output.replace_all_uses_with(cast)
            folded.append(node)
        if folded:
            _remove_unused(model)
        return PassResult(model, bool(folded))


class AbsorbOutputScales(Pass):
    """QuantizeLinear behind a convolution that nothing else reads → into it; DequantizeLinear before its residual too."""

    name: ClassVar[str] = "int8-epilogues"

    def call(self, model: ir.Model) -> PassResult:
        """Absorb in place."""
        modified = False
        for node in list(model.graph):
            conv = node.inputs[0].producer() if is_op(node, "QuantizeLinear") and node.inputs[0] is not None else None
            scale = _scale(node)
            if (
                scale is not None
                and conv is not None
                and is_op(conv, "Conv", DOMAIN)
                and scale_of(conv, "x_scale")
                and only_read_by(conv, node)
            ):
                set_attributes(conv, {"y_scale": scale})
                swap(model.graph, [node], conv.outputs[0])
                modified = True
        for node in list(model.graph):
            residual = node.inputs[3] if is_op(node, "Conv", DOMAIN) and len(node.inputs) > 3 else None
            origin = None if residual is None else residual.producer()
            scale = _scale(origin) if is_op(origin, "DequantizeLinear") else None
            if origin is not None and scale is not None:
                set_attributes(node, {"residual_scale": scale})
                node.replace_input_with(3, origin.inputs[0])
                modified = True
        if modified:
            _remove_unused(model)
        return PassResult(model, modified)


# -- inside ----------------------------------------------------------------------------------------------------------------


def _remove_unused(model: ir.Model) -> None:
    require("onnx_ir.passes.common", extra="onnx").RemoveUnusedNodesPass()(model)


def _scale(node: ir.Node | None) -> float | None:
    """The one scale of a Q or DQ of signed codes around 0; None for others."""
    if node is None or node.op_type not in ("QuantizeLinear", "DequantizeLinear") or node.domain:
        return None
    scale = constant(node.inputs[1])
    zero = constant(node.inputs[2]) if len(node.inputs) > 2 else None
    if scale is None or scale.size != 1 or zero is None or zero.dtype != np.int8 or zero.any():
        return None
    return float(scale.reshape(()))


def _drop_pair(quantize: ir.Node) -> bool:
    value = quantize.inputs[0]
    origin = None if value is None else value.producer()
    scale = _scale(quantize)
    if origin is None or not is_op(origin, "DequantizeLinear") or scale is None or _scale(origin) != scale:
        return False
    codes = origin.inputs[0]
    if codes is None or quantize.outputs[0].is_graph_output() or constant(codes) is not None:
        return False
    quantize.outputs[0].replace_all_uses_with(codes)
    return True


def _moves(node: ir.Node) -> bool:
    if node.domain == "":
        nearest = node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") == "nearest"
        return nearest or node.op_type in _MOVING
    if node.domain == DOMAIN:
        return False
    onnx_ir = require("onnx_ir", extra="onnx")
    try:
        return from_node(onnx_ir.to_proto(node)).int8 == "pass_through"
    except PytrtpluginsError:
        return False


def _move(graph: ir.Graph, node: ir.Node) -> bool:
    """Let a moving node read codes, and dequantize what it gives."""
    onnx_ir = require("onnx_ir", extra="onnx")
    several = node.op_type == "Concat" or node.domain != ""
    data = [value for value in (node.inputs if several else node.inputs[:1]) if value is not None]
    origins = [value.producer() for value in data]
    scales = {_scale(origin) if is_op(origin, "DequantizeLinear") else None for origin in origins}
    if len(scales) != 1 or None in scales or any(output.is_graph_output() for output in node.outputs):
        return False
    if any(origin is None or constant(origin.inputs[0]) is not None for origin in origins):
        return False
    first = origins[0]
    assert first is not None
    for place, origin in enumerate(origins):
        assert origin is not None
        node.replace_input_with(place, origin.inputs[0])
    for output in node.outputs:
        uses = list(output.uses())
        made = onnx_ir.node("DequantizeLinear", [output, *first.inputs[1:]], name=f"{output.name}.dequantize")
        floats = made.outputs[0]
        floats.shape, floats.type, floats.name = output.shape, output.type, f"{output.name}.float"
        output.type = onnx_ir.TensorType(onnx_ir.DataType.INT8)
        graph.insert_after(node, made)
        for use in uses:
            use.node.replace_input_with(use.idx, floats)
    return True


def _absorb_input(graph: ir.Graph, conv: ir.Node) -> bool:
    origins = [None if value is None else value.producer() for value in conv.inputs[:2]]
    x, weights = (origin if is_op(origin, "DequantizeLinear") else None for origin in origins)
    scale = _scale(x)
    codes = None if weights is None else constant(weights.inputs[0])
    steps = None if weights is None else constant(weights.inputs[1])
    if x is None or weights is None or scale is None or codes is None or steps is None or codes.dtype != np.int8:
        return False
    zero = constant(weights.inputs[2]) if len(weights.inputs) > 2 else None
    axis = weights.attributes.get_int("axis", 1)
    if (zero is not None and zero.any()) or (steps.size > 1 and axis not in (0, -4)):
        return False
    filters = int(codes.shape[0])
    per_filter: Any = np.broadcast_to(steps.reshape(-1), (filters,)).astype(np.float32)
    conv.resize_inputs(5)
    conv.replace_input_with(0, x.inputs[0])
    conv.replace_input_with(1, weights.inputs[0])
    conv.replace_input_with(4, add_constant(graph, f"{conv.outputs[0].name}.weight_scales", per_filter))
    set_attributes(conv, {"x_scale": scale})
    return True
