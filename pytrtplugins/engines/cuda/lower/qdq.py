"""Remove Q/DQ nodes: data movement works on int8 or FP8 codes, and convolutions read and write codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ....model.ir import add_constant, array_of, constant, is_op, operand, set_attributes, swap
from ....model.operator_traits import Trait, operators
from ....plugin.onnx_node import passes_int8_through
from ....tensor import DType
from ....utils.optional import ir
from ..device.elements import encoded, from_stored, stored
from ..operators import OPS
from ..operators.attributes import operator_attributes
from .rewrite import DOMAIN, Rewrite, codes_scale, codes_type, convolution_before, is_around_zero, scale_of

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

_MOVING = operators(Trait.COPIES) - operators(Trait.REPEATS) - {"Dropout", "Identity"}
"""Operators below which a DequantizeLinear sinks. Not Expand and Tile, which make more elements to dequantize; Resize has modes, Dropout
a mask, and passes remove Identity."""


class SinkDequantize(Rewrite["list[ir.Node]"]):
    """DequantizeLinear before a data movement node → behind it; where a QuantizeLinear of the same scale reads it, both are removed.

    Moving nodes are Concat, MaxPool, Reshape, Transpose and their like, nearest Resize, and plugins whose ``int8`` is
    ``"pass_through"``.

    What does not match: (1) tensors of several scales or types, or of another zero point than 0; (2) constants; (3) what the network's
    output is made of.
    """

    name: ClassVar[str] = "int8-moves"
    needs: ClassVar[tuple[str, ...]] = ("DequantizeLinear",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> list[ir.Node] | None:
        """The DequantizeLinear nodes that a data movement node or a QuantizeLinear reads."""
        is_quantize = is_op(node, "QuantizeLinear")
        if not is_quantize and not _is_data_movement(node):
            return None
        reads_all_inputs = node.op_type == "Concat" or node.domain != ""
        data = [value for value in (node.inputs if reads_all_inputs else node.inputs[:1]) if value is not None]
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
        """Remove the pair DQ and Q; or let the data movement node read codes, and insert a DequantizeLinear behind it."""
        if is_op(node, "QuantizeLinear"):
            codes = match[0].inputs[0]
            assert codes is not None
            node.outputs[0].replace_all_uses_with(codes)
        else:
            _sink_dequantize(graph, node, match)


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
        """The DequantizeLinear nodes of a convolution's data and weights, and the scale of the data."""
        if not is_op(node, "Conv", DOMAIN) or scale_of(node, "x_scale"):  # case 1
            return None
        origins = [None if value is None else value.producer() for value in node.inputs[:2]]
        x, weights = (origin if is_op(origin, "DequantizeLinear") else None for origin in origins)
        scale = codes_scale(x)
        if x is None or weights is None or scale is None:  # case 2
            return None
        codes, weight_scales = constant(weights.inputs[0]), array_of(weights.inputs[1])
        if codes is None or weight_scales is None or codes.dtype.numpy().name != codes_type(x):  # case 3
            return None
        if not is_around_zero(weights):  # case 4
            return None
        by_filter = weight_scales.size == 1 or (
            weight_scales.ndim == 1 and weights.attributes.get_int("axis", 1) in (0, -4)
        )
        return (x, weights, scale) if by_filter else None  # case 5

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[ir.Node, ir.Node, float]) -> None:
        """Let the convolution read codes of data and weights, and the scales of the weights as input 4."""
        x, weights, scale = match
        codes: Any = constant(weights.inputs[0])
        filters = int(codes.shape[0])
        weight_scales: Any = np.broadcast_to(array_of(weights.inputs[1]).reshape(-1), (filters,)).astype(np.float32)
        node.resize_inputs(5)
        node.replace_input_with(0, x.inputs[0])
        node.replace_input_with(1, weights.inputs[0])
        node.replace_input_with(4, add_constant(graph, f"{node.outputs[0].name}.weight_scales", weight_scales))
        set_attributes(node, {"x_scale": scale})


class FoldConstants(Rewrite[Any]):
    """DequantizeLinear of a constant → a constant: weights of layers that stay in float.

    What does not match: (1) an output of the network; (2) scales that are powers of two (float8_e8m0fnu), to which results round.
    """

    name: ClassVar[str] = "float-weights"
    needs: ClassVar[tuple[str, ...]] = ("DequantizeLinear",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> Any:
        """The dequantized values of a constant."""
        if not is_op(node, "DequantizeLinear") or node.outputs[0].is_graph_output():  # case 1
            return None
        return computed_constant(node, array_of(node.inputs[0]))

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: Any) -> None:
        """Replace the node by a constant of the values."""
        node.outputs[0].replace_all_uses_with(add_constant(graph, f"{node.outputs[0].name}.values", match))


class FoldCodes(FoldConstants):
    """QuantizeLinear of a constant, or of a dequantized constant → constant codes.

    onnxruntime's quantizer writes the latter where two layers share their weights.

    What does not match: (1) an output of the network; (2) scales that are powers of two (float8_e8m0fnu), to which results round.
    """

    name: ClassVar[str] = "constant-codes"
    needs: ClassVar[tuple[str, ...]] = ("QuantizeLinear",)

    def match(self, node: ir.Node) -> Any:
        """The codes of a quantized constant."""
        value = operand(node, 0)
        if not is_op(node, "QuantizeLinear") or value is None or node.outputs[0].is_graph_output():  # case 1
            return None
        origin, values = value.producer(), array_of(value)
        if origin is not None and is_op(origin, "DequantizeLinear"):
            values = computed_constant(origin, array_of(origin.inputs[0]))
        return computed_constant(node, values)


class FoldCasts(Rewrite[Any]):
    """Cast of a constant → a constant: weights that are stored in half and computed with in float32.

    What does not match: (1) an output of the network.
    """

    name: ClassVar[str] = "constant-casts"
    needs: ClassVar[tuple[str, ...]] = ("Cast",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> Any:
        """The values of a constant that a Cast reads."""
        if not is_op(node, "Cast") or node.outputs[0].is_graph_output():  # case 1
            return None
        return array_of(node.inputs[0])

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: Any) -> None:
        """Replace the Cast by a constant of its result."""
        kind, output = ir.DataType(node.attributes.get_int("to")), node.outputs[0]
        with np.errstate(over="ignore", invalid="ignore"):  # ONNX leaves open what becomes of NaN
            values = match.astype(kind.numpy())
        output.replace_all_uses_with(add_constant(graph, f"{output.name}.values", values))


class AbsorbOutputScales(Rewrite["tuple[ir.Node, float]"]):
    """QuantizeLinear behind a convolution → the convolution's ``y_scale``.

    What does not match: (1) codes that are not int8 or FP8 around 0 with one scale; (2) a convolution that something else reads too;
    (3) one of floats whose codes are int8, which the libraries' kernels do not write.
    """

    name: ClassVar[str] = "int8-epilogues"
    needs: ClassVar[tuple[str, ...]] = ("QuantizeLinear",)

    def match(self, node: ir.Node) -> tuple[ir.Node, float] | None:
        """The convolution that a QuantizeLinear reads, and the scale."""
        conv, scale = convolution_before(node) if is_op(node, "QuantizeLinear") else None, codes_scale(node)
        if conv is None or scale is None:  # cases 1 and 2
            return None
        if codes_type(node) is DType.INT8 and not scale_of(conv, "x_scale"):  # case 3
            return None
        return conv, scale

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[ir.Node, float]) -> None:
        """Remove the QuantizeLinear, and let the convolution write codes."""
        conv, scale = match
        set_attributes(conv, {"y_scale": scale})
        swap(graph, [node], conv.outputs[0])


class AbsorbResidualScales(Rewrite["tuple[ir.Node, float]"]):
    """DequantizeLinear of a convolution's residual → the convolution's ``residual_scale``.

    What does not match: (1) codes that are not int8 or FP8 around 0 with one scale.
    """

    name: ClassVar[str] = "int8-residuals"
    needs: ClassVar[tuple[str, ...]] = ("DequantizeLinear",)
    leaves_unused: ClassVar[bool] = True

    def match(self, node: ir.Node) -> tuple[ir.Node, float] | None:
        """The DequantizeLinear of a convolution's residual, and its scale."""
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
    """Compute a QuantizeLinear or DequantizeLinear of an array.

    None where the array, the scale or the zero point is unknown, or scales are powers of two (float8_e8m0fnu).
    """
    scale, zero_point, output = array_of(node.inputs[1]), array_of(operand(node, 2)), node.outputs[0]
    is_computed = operand(node, 2) is not None and zero_point is None
    if x is None or scale is None or is_computed or scale.dtype.name == DType.FLOAT8E8M0.value:
        return None
    attributes = operator_attributes(node)
    with np.errstate(over="ignore", invalid="ignore"):  # a scale may be infinite
        values = OPS[node.op_type](np, attributes, None, x, scale.astype(np.float32), zero_point)
        if node.op_type == "DequantizeLinear":
            return values  # type: ignore[no-any-return]
        dtype = DType.of(output.dtype.numpy()) if output.dtype is not None else DType.UINT8
        codes = encoded(np, values, dtype, attributes)
    return from_stored(codes.astype(stored(dtype), copy=False), dtype)


def _is_data_movement(node: ir.Node) -> bool:
    """Whether a node only moves values: an operator of `_MOVING`, a nearest Resize, or a plugin that passes int8 through."""
    if node.domain:
        return node.domain != DOMAIN and passes_int8_through(node)
    nearest = node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") == "nearest"
    return nearest or node.op_type in _MOVING


def _sink_dequantize(graph: ir.Graph, node: ir.Node, origins: Sequence[ir.Node]) -> None:
    """Let a data movement node read codes, and insert a DequantizeLinear behind each output.

    Args:
        graph: The graph.
        node: The data movement node.
        origins: The DequantizeLinear of each of its data inputs.
    """
    for place, origin in enumerate(origins):
        node.replace_input_with(place, origin.inputs[0])
    kind = ir.DataType.from_numpy(array_of(operand(origins[0], 2)).dtype)
    for output in node.outputs:
        uses = list(output.uses())
        dequantize = ir.node("DequantizeLinear", [output, *origins[0].inputs[1:]], name=f"{output.name}.dequantize")
        floats = dequantize.outputs[0]
        floats.shape, floats.type, floats.name = output.shape, output.type, f"{output.name}.float"
        output.type = ir.TensorType(kind)
        graph.insert_after(node, dequantize)
        for use in uses:
            use.node.replace_input_with(use.idx, floats)
