"""Q/DQ → tensors of int8 or FP8: what only moves values moves codes, and convolutions take and give codes themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ....model.ir import add_constant, array_of, constant, is_op, operand, set_attributes, swap
from ....model.operator_traits import Trait, operators
from ....plugin.onnx_node import passes_int8_through
from ....tensor import DType
from ....utils.optional import require
from ..device.elements import encoded, from_stored, stored
from ..operators import OPS
from ..operators.attributes import operator_attributes
from .rewrite import DOMAIN, Rewrite, codes_scale, codes_type, convolution_before, is_around_zero, scale_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "AbsorbInputScales",
    "AbsorbOutputScales",
    "AbsorbResidualScales",
    "FoldCasts",
    "FoldCodes",
    "FoldConstants",
    "SinkDequantize",
    "computed_constant",
]

_MOVING = operators(Trait.COPIES) - {"Dropout", "Expand", "Identity", "Resize", "Tile"}
"""Expand and Tile would leave more elements to dequantize; Resize has modes, Dropout a mask, and passes remove Identity."""


class SinkDequantize(Rewrite["list[ir.Node]"]):
    """DequantizeLinear before a node that only moves values → behind it; Q behind DQ of the same scale goes.

    Moving nodes are Concat, MaxPool, Reshape, Transpose and their like, nearest Resize, and plugins whose ``int8`` is
    ``"pass_through"``.

    What does not match: (1) tensors of several scales or types, or of another zero point than 0; (2) constants; (3) what the network's
    output is made of.
    """

    name: ClassVar[str] = "int8-moves"
    needs: ClassVar[tuple[str, ...]] = ("DequantizeLinear",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> list[ir.Node] | None:
        """The nodes that dequantize what it reads."""
        is_quantize = is_op(node, "QuantizeLinear")
        if not is_quantize and not _moves(node):
            return None
        several = node.op_type == "Concat" or node.domain != ""
        data = [value for value in (node.inputs if several else node.inputs[:1]) if value is not None]
        origins = [
            origin for value in data if is_op(origin := value.producer(), "DequantizeLinear") and origin is not None
        ]
        pairs = (*origins, *([node] if is_quantize else []))
        scales, types = {codes_scale(pair) for pair in pairs}, {codes_type(pair) for pair in pairs}
        if len(origins) < len(data) or (len(scales), len(types)) != (1, 1) or None in scales:  # case 1
            return None
        if any(constant(origin.inputs[0]) is not None for origin in origins):  # case 2
            return None
        return None if any(output.is_graph_output() for output in node.outputs) else origins  # case 3

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: list[ir.Node]) -> None:
        """Drop the pair, or let the node read codes and dequantize what it gives."""
        if is_op(node, "QuantizeLinear"):
            codes = match[0].inputs[0]
            assert codes is not None
            node.outputs[0].replace_all_uses_with(codes)
        else:
            _move(graph, node, match)


class AbsorbInputScales(Rewrite["tuple[ir.Node, ir.Node, float]"]):
    """Convolutions of dequantized codes with dequantized weights → convolutions of codes, whose products are exact.

    What does not match: (1) a convolution of codes already; (2) float data or weights, or data whose codes are not int8 or FP8
    around 0 with one scale; (3) weights that are computed or of another type than the data; (4) weights around another zero
    point than 0; (5) scales along another axis than the filters.
    """

    name: ClassVar[str] = "int8-convolutions"
    needs: ClassVar[tuple[str, ...]] = ("DequantizeLinear",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> tuple[ir.Node, ir.Node, float] | None:
        """What dequantizes the data and the weights, and the data's scale."""
        if not is_op(node, "Conv", DOMAIN) or scale_of(node, "x_scale"):  # case 1
            return None
        origins = [None if value is None else value.producer() for value in node.inputs[:2]]
        x, weights = (origin if is_op(origin, "DequantizeLinear") else None for origin in origins)
        scale = codes_scale(x)
        if x is None or weights is None or scale is None:  # case 2
            return None
        codes, steps = constant(weights.inputs[0]), array_of(weights.inputs[1])
        if codes is None or steps is None or codes.dtype.numpy().name != codes_type(x):  # case 3
            return None
        if not is_around_zero(weights):  # case 4
            return None
        by_filter = steps.size == 1 or (steps.ndim == 1 and weights.attributes.get_int("axis", 1) in (0, -4))
        return (x, weights, scale) if by_filter else None  # case 5

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[ir.Node, ir.Node, float]) -> None:
        """Let the convolution read codes."""
        x, weights, scale = match
        codes: Any = constant(weights.inputs[0])
        filters = int(codes.shape[0])
        steps: Any = np.broadcast_to(array_of(weights.inputs[1]).reshape(-1), (filters,)).astype(np.float32)
        node.resize_inputs(5)
        node.replace_input_with(0, x.inputs[0])
        node.replace_input_with(1, weights.inputs[0])
        node.replace_input_with(4, add_constant(graph, f"{node.outputs[0].name}.weight_scales", steps))
        set_attributes(node, {"x_scale": scale})


class FoldConstants(Rewrite[Any]):
    """DequantizeLinear of constants → constants: weights of layers that stay in float.

    What does not match: (1) what the network's output is; (2) scales that are powers of two (float8_e8m0fnu), to which results round.
    """

    name: ClassVar[str] = "float-weights"
    needs: ClassVar[tuple[str, ...]] = ("DequantizeLinear",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> Any:
        """The values."""
        if not is_op(node, "DequantizeLinear") or node.outputs[0].is_graph_output():  # case 1
            return None
        return computed_constant(node, array_of(node.inputs[0]))

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: Any) -> None:
        """Put the values in the node's place."""
        node.outputs[0].replace_all_uses_with(add_constant(graph, f"{node.outputs[0].name}.values", match))


class FoldCodes(Rewrite[Any]):
    """QuantizeLinear of a constant, or of what DequantizeLinear makes of one → constant codes.

    onnxruntime's quantizer writes the latter where two layers share their weights.

    What does not match: (1) what the network's output is; (2) scales that are powers of two (float8_e8m0fnu), to which results round.
    """

    name: ClassVar[str] = "constant-codes"
    needs: ClassVar[tuple[str, ...]] = ("QuantizeLinear",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> Any:
        """The codes."""
        value = operand(node, 0)
        if not is_op(node, "QuantizeLinear") or value is None or node.outputs[0].is_graph_output():  # case 1
            return None
        origin, values = value.producer(), array_of(value)
        if origin is not None and is_op(origin, "DequantizeLinear"):
            values = computed_constant(origin, array_of(origin.inputs[0]))
        return computed_constant(node, values)

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: Any) -> None:
        """Put the codes in the node's place."""
        node.outputs[0].replace_all_uses_with(add_constant(graph, f"{node.outputs[0].name}.values", match))


class FoldCasts(Rewrite[Any]):
    """Cast of a constant → a constant: weights that are stored in half and computed with in float32.

    What does not match: (1) what the network's output is.
    """

    name: ClassVar[str] = "constant-casts"
    needs: ClassVar[tuple[str, ...]] = ("Cast",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> Any:
        """The constant."""
        if not is_op(node, "Cast") or node.outputs[0].is_graph_output():  # case 1
            return None
        return array_of(node.inputs[0])

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: Any) -> None:
        """Compute the values."""
        kind, output = require("onnx_ir", extra="onnx").DataType(node.attributes.get_int("to")), node.outputs[0]
        with np.errstate(over="ignore", invalid="ignore"):  # ONNX leaves open what becomes of NaN
            values = match.astype(kind.numpy())
        output.replace_all_uses_with(add_constant(graph, f"{output.name}.values", values))


class AbsorbOutputScales(Rewrite["tuple[ir.Node, float]"]):
    """QuantizeLinear behind a convolution → into it.

    What does not match: (1) codes that are not int8 or FP8 around 0 with one scale; (2) a convolution that something else reads too;
    (3) one of floats whose codes are int8, which the libraries' kernels do not write.
    """

    name: ClassVar[str] = "int8-epilogues"
    needs: ClassVar[tuple[str, ...]] = ("QuantizeLinear",)

    def match(self, node: ir.Node) -> tuple[ir.Node, float] | None:
        """The convolution, and the scale of its output."""
        conv, scale = convolution_before(node) if is_op(node, "QuantizeLinear") else None, codes_scale(node)
        if conv is None or scale is None:  # cases 1 and 2
            return None
        if codes_type(node) is DType.INT8 and not scale_of(conv, "x_scale"):  # case 3
            return None
        return conv, scale

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[ir.Node, float]) -> None:
        """Let the convolution write codes."""
        conv, scale = match
        set_attributes(conv, {"y_scale": scale})
        swap(graph, [node], conv.outputs[0])


class AbsorbResidualScales(Rewrite["tuple[ir.Node, float]"]):
    """DequantizeLinear before a convolution's residual → into the convolution.

    What does not match: (1) codes that are not int8 or FP8 around 0 with one scale.
    """

    name: ClassVar[str] = "int8-residuals"
    needs: ClassVar[tuple[str, ...]] = ("DequantizeLinear",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> tuple[ir.Node, float] | None:
        """What dequantizes the residual, and its scale."""
        residual = operand(node, 3) if is_op(node, "Conv", DOMAIN) else None
        origin = None if residual is None else residual.producer()
        scale = codes_scale(origin) if is_op(origin, "DequantizeLinear") else None
        return None if origin is None or scale is None else (origin, scale)  # case 1

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[ir.Node, float]) -> None:
        """Let the convolution read the residual's codes."""
        origin, scale = match
        set_attributes(node, {"residual_scale": scale})
        node.replace_input_with(3, origin.inputs[0])


# -- inside ----------------------------------------------------------------------------------------------------------------


def computed_constant(node: ir.Node, x: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    """What a Q or DQ makes of an array; None where the array, a scale or a zero point is unknown, or scales are powers of two."""
    steps, zero, output = array_of(node.inputs[1]), array_of(operand(node, 2)), node.outputs[0]
    is_computed = operand(node, 2) is not None and zero is None
    if x is None or steps is None or is_computed or steps.dtype.name == DType.FLOAT8E8M0.value:
        return None
    attributes = operator_attributes(node)
    with np.errstate(over="ignore", invalid="ignore"):  # a scale may be infinite
        values = OPS[node.op_type](np, attributes, None, x, steps.astype(np.float32), zero)
        if node.op_type == "DequantizeLinear":
            return values  # type: ignore[no-any-return]
        dtype = DType.of(output.dtype.numpy()) if output.dtype is not None else DType.UINT8
        codes = encoded(np, values, dtype, attributes)
    return from_stored(codes.astype(stored(dtype), copy=False), dtype)


def _moves(node: ir.Node) -> bool:
    if node.domain:
        return node.domain != DOMAIN and passes_int8_through(node)
    nearest = node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") == "nearest"
    return nearest or node.op_type in _MOVING


def _move(graph: ir.Graph, node: ir.Node, origins: Sequence[ir.Node]) -> None:
    """Let a moving node read codes, and dequantize what it gives."""
    onnx_ir = require("onnx_ir", extra="onnx")
    for place, origin in enumerate(origins):
        node.replace_input_with(place, origin.inputs[0])
    kind = onnx_ir.DataType.from_numpy(array_of(operand(origins[0], 2)).dtype)
    for output in node.outputs:
        uses = list(output.uses())
        made = onnx_ir.node("DequantizeLinear", [output, *origins[0].inputs[1:]], name=f"{output.name}.dequantize")
        floats = made.outputs[0]
        floats.shape, floats.type, floats.name = output.shape, output.type, f"{output.name}.float"
        output.type = onnx_ir.TensorType(kind)
        graph.insert_after(node, made)
        for use in uses:
            use.node.replace_input_with(use.idx, floats)
