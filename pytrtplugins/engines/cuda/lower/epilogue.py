"""Fuse convolutions with their bias, activation and residual into ``Conv`` nodes of this engine's own domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ....model.ir import (
    add_constant,
    array_of,
    constant,
    depths,
    dims_of,
    is_op,
    only_read_by,
    operand,
    set_attributes,
    swap,
)
from ....model.operator_traits import Trait, operators
from ....utils.optional import ir
from ..device.activation import ACTIVATIONS, PLAIN
from .rewrite import DOMAIN, Rewrite, convolution_before, has_residual, has_rows, is_float, scale_of, weight_dims

__all__ = ["FuseActivations", "FuseConvolutions", "FuseResiduals", "comes_from_constants", "fused_convolution"]

_WRITES_AGAIN = operators(Trait.RETYPES) - {"CastLike"} | {"Identity"}
_NO_NUMBERS = {op: each.name.lower() for op, each in PLAIN.items() if op not in ("Tanh", "Mish")} | {"Relu": "leaky"}
"""Operators without numbers that convolutions compute → activation."""


@dataclass(frozen=True)
class _Activation:
    """An activation to fuse: the convolution, its new attributes, and the slopes (K) of a PRelu."""

    conv: ir.Node
    attributes: dict[str, Any]
    slopes: npt.NDArray[np.float32] | None


class FuseConvolutions(Rewrite[list[int]]):
    """Conv → this engine's ``Conv``, which has a bias always and no padding rule but four numbers.

    Inputs: x, weights (K, C / group, R, S), bias (K), residual or nothing, scales of the weights (K) or nothing, slopes (K) of
    ``"prelu"`` or nothing.
    Attributes: ``strides``, ``pads`` (top, left, bottom, right), ``dilations``, ``group``; ``activation`` (``"linear"``,
    ``"leaky"``, ``"clip"``, ``"logistic"``, ``"swish"``, ``"gelu"``, ``"gelu_tanh"``, ``"quick_gelu"``, ``"hard_swish"``,
    ``"hard_sigmoid"``, ``"prelu"``, before the residual or behind it) with
    ``bounds`` (slope, or lowest and highest, or slope and offset); the same behind the residual in ``residual_activation``,
    ``residual_bounds``; ``rows`` 1: x is not an image but a linear tensor (…, C) of any rank, whose rows are pixels, and so is the
    output; ``pool`` 1: the largest of each 2x2 pixels behind all that; ``reorg``: stride of darknet's reorg behind all that,
    or 0; ``blocks``: side of the blocks of pixels that are made of channels behind all that, as by DepthToSpace, or 0, and ``cut``,
    the pixels of these that are left out (top, left, bottom, right); ``image`` 1: x is the network's input, float32 and
    linear; for int8 ``x_scale``, ``residual_scale`` and ``y_scale``, 0 where the tensor is float.

    What does not match: (1) a convolution of 1-D or 3-D tensors; (2) one whose weights or bias are computed in the run;
    (3) one padded by SAME whose input has unknown dims; (4) other types than float32 and float16.
    """

    name: ClassVar[str] = "convolutions"
    needs: ClassVar[tuple[str, ...]] = ("Conv",)

    def match(self, node: ir.Node) -> list[int] | None:
        """The pads of a Conv that matches: top, left, bottom, right."""
        dims = weight_dims(node) if is_op(node, "Conv") and is_float(node) else ()
        if not dims or not all(comes_from_constants(value) for value in node.inputs[1:]):  # cases 1, 2 and 4
            return None
        pads = _pads(node, dims[2:], *_strides_and_dilations(node))  # None: case 3
        if pads is not None and [len(numbers) for numbers in (*_strides_and_dilations(node), pads)] != [2, 2, 4]:
            raise ValueError("expected two strides and dilations, and four pads")
        return pads

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: list[int]) -> None:
        """Replace the Conv by the engine's own."""
        bias = operand(node, 2)
        if bias is None:
            bias = add_constant(graph, f"{node.outputs[0].name}.bias", np.zeros(weight_dims(node)[0], np.float32))
        strides, dilations = _strides_and_dilations(node)
        group = node.attributes.get_int("group", 1)
        operands = [node.inputs[0], node.inputs[1], bias]
        fused = fused_convolution(graph, node, operands, strides=strides, pads=match, dilations=dilations, group=group)
        swap(graph, [node], fused.outputs[0])


class FuseActivations(Rewrite[_Activation]):
    """LeakyRelu, Relu, PRelu, Clip, HardSigmoid and the activations of `PLAIN` behind a convolution or its residual → into it.

    What does not match: (1) an activation whose bounds are computed, or slopes that are neither one nor one for each filter;
    (2) a convolution that something else reads too; (3) one that has an activation there already, or slopes before the residual;
    (4) one that writes codes already; (5) a gated activation behind a residual.
    """

    name: ClassVar[str] = "activations"
    needs: ClassVar[tuple[str, ...]] = ("Conv",)

    def match(self, node: ir.Node) -> _Activation | None:
        """The convolution before an activation, and the attributes that it gets."""
        conv = convolution_before(node)
        if conv is None:  # case 2
            return None
        slopes = _prelu_slopes(node, conv) if is_op(node, "PRelu") else None
        activation = _activation(node) if slopes is None else _slopes_activation(slopes)
        if activation is None:  # case 1
            return None
        place = "residual_activation" if has_residual(conv) else "activation"
        has_slopes = activation[0] == "prelu" and operand(conv, 5) is not None
        if has_slopes or conv.attributes.get_string(place) != "linear" or scale_of(conv, "y_scale"):  # cases 3 and 4
            return None
        if place != "activation" and ACTIVATIONS[activation[0]].gated:  # case 5
            return None
        attributes = {place: activation[0], place.replace("activation", "bounds"): activation[1]}
        return _Activation(conv, attributes, slopes if activation[0] == "prelu" else None)

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: _Activation) -> None:
        """Remove the activation, and set it as attributes of the convolution."""
        conv = match.conv
        set_attributes(conv, match.attributes)
        if match.slopes is not None:
            conv.resize_inputs(6)
            conv.replace_input_with(5, add_constant(graph, f"{node.outputs[0].name}.slopes", match.slopes))
        swap(graph, [node], conv.outputs[0])


class FuseResiduals(Rewrite["tuple[ir.Node, ir.Value]"]):
    """Add behind a convolution → residual of the convolution.

    Where both operands are convolutions, the one with more nodes before it adds; one whose output is dequantized never does. So the
    projection of a block's input runs beside the rest of the block, and does not wait for it.

    What does not match: (1) a constant; (2) tensors whose dims differ or are unknown; (3) a tensor added to itself;
    (4) a convolution that something else reads too; (5) one that has a residual already; (6) tensors of two types;
    (7) a convolution that writes codes already.
    """

    name: ClassVar[str] = "residuals"
    needs: ClassVar[tuple[str, ...]] = ("Conv",)

    def begin(self, graph: ir.Graph) -> None:
        """Note the place of each node in the graph, and its depth: the number of nodes on the longest path to it."""
        self._order = {node: index for index, node in enumerate(graph)}
        self._depths = depths(graph)

    def match(self, node: ir.Node) -> tuple[ir.Node, ir.Value] | None:
        """The convolution that an Add reads, and the residual: the other operand of the Add."""
        values = node.inputs if is_op(node, "Add") else ()
        sides = [value for value in values if value is not None and constant(value) is None]
        if len(sides) != 2:  # case 1
            return None
        if sides[0].shape is None or sides[0].shape != sides[1].shape or sides[0] is sides[1]:  # cases 2 and 3
            return None
        sides.sort(key=lambda value: self._sort_key(value.producer()), reverse=True)
        if all(is_op(value.producer(), "Conv", DOMAIN) for value in sides):
            sides.sort(key=lambda value: self._depths[value.producer()], reverse=True)  # type: ignore[index]
        conv, residual = sides[0].producer(), sides[1]
        if conv is None or not is_op(conv, "Conv", DOMAIN) or not only_read_by(conv, node):  # case 4
            return None
        if has_residual(conv) or residual.dtype != sides[0].dtype or scale_of(conv, "y_scale"):  # cases 5 to 7
            return None
        return conv, residual

    def rewrite(self, graph: ir.Graph, node: ir.Node, match: tuple[ir.Node, ir.Value]) -> None:
        """Remove the Add, and let the convolution read the residual as input 3."""
        conv, residual = match
        if self._order[conv] < self._order.get(residual.producer(), -1):  # type: ignore[arg-type]
            graph.remove(conv)  # which nothing else reads, to a place behind the residual
            graph.insert_before(node, conv)
            self._order[conv] = self._order[node]
        conv.resize_inputs(max(4, len(conv.inputs)))
        conv.replace_input_with(3, residual)
        swap(graph, [node], conv.outputs[0])

    def _sort_key(self, producer: ir.Node | None) -> tuple[bool, int]:
        """Sort key of an operand of an Add: its place in the graph; a DequantizeLinear sorts first, since it can only be the residual."""
        if producer is None:
            return False, -1
        return not is_op(producer, "DequantizeLinear"), self._order[producer]


def fused_convolution(graph: ir.Graph, node: ir.Node, operands: list[Any], **attributes: Any) -> ir.Node:
    """Insert an engine's ``Conv`` before a node, with its name; attributes that are not given say that nothing is fused, strides are 1."""
    defaults = {
        "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1, "rows": 0,
        "activation": "linear", "bounds": [0.0, 0.0], "residual_activation": "linear", "residual_bounds": [0.0, 0.0],
        "x_scale": 0.0, "residual_scale": 0.0, "y_scale": 0.0, "pool": 0, "reorg": 0, "blocks": 0, "cut": [0] * 4, "image": 0,
    }  # fmt: skip
    conv: ir.Node = ir.node("Conv", operands, domain=DOMAIN, name=node.name)
    set_attributes(conv, {**defaults, **attributes})
    graph.insert_before(node, conv)
    return conv


def comes_from_constants(value: ir.Value | None) -> bool:
    """Whether a value is a constant, perhaps through Cast, Identity, QuantizeLinear or DequantizeLinear."""
    while value is not None and constant(value) is None:
        producer = value.producer()
        if producer is None or producer.op_type not in _WRITES_AGAIN:
            return False
        if any(other is not None and constant(other) is None for other in producer.inputs[1:]):
            return False  # a scale or a zero point that is computed
        value = producer.inputs[0]
    return True


# -- inside ----------------------------------------------------------------------------------------------------------------


def _pads(node: ir.Node, kernel: tuple[int, ...], strides: list[int], dilations: list[int]) -> list[int] | None:
    """Pads of a Conv (top, left, bottom, right); None where auto_pad is SAME and dims are unknown."""
    rule = node.attributes.get_string("auto_pad", "NOTSET")
    if rule in ("NOTSET", "VALID"):
        return [int(pad) for pad in node.attributes.get_ints("pads", [0] * 4)] if rule == "NOTSET" else [0] * 4
    sides = [side for side in (dims_of(node.inputs[0]) or ())[2:] if isinstance(side, int)]
    if len(sides) != 2:
        return None
    totals = [
        max((-(-side // stride) - 1) * stride + (size - 1) * dilation + 1 - side, 0)
        for side, size, stride, dilation in zip(sides, kernel, strides, dilations, strict=True)
    ]
    halves = [total // 2 for total in totals]
    others = [total - half for total, half in zip(totals, halves, strict=True)]
    return halves + others if rule == "SAME_UPPER" else others + halves


def _strides_and_dilations(node: ir.Node) -> tuple[list[int], list[int]]:
    """Strides and dilations of a Conv."""
    at = node.attributes
    return list(at.get_ints("strides", [1, 1])), list(at.get_ints("dilations", [1, 1]))


def _prelu_slopes(node: ir.Node, conv: ir.Node) -> npt.NDArray[np.float32] | None:
    """Slopes of a PRelu behind a convolution, one for each filter; None where they vary along other axes."""
    array, filters = array_of(node.inputs[1]), weight_dims(conv)[0]
    rank = len(dims_of(node.inputs[0]) or ())
    axis = -1 if has_rows(conv) else 1 - rank
    if array is None or not -axis <= rank or array.ndim > rank:
        return None
    dims = [1] * (rank - array.ndim) + list(array.shape)
    if dims.pop(axis) not in (1, filters) or any(dim != 1 for dim in dims):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float32), (filters,))


def _slopes_activation(slopes: npt.NDArray[np.float32]) -> tuple[str, list[float]]:
    """Name and bounds of the activation with these slopes: "leaky" for one slope between 0 and 1, else "prelu"."""
    first = float(slopes[0])
    return ("leaky", [first, 0.0]) if (slopes == first).all() and 0 <= first <= 1 else ("prelu", [0.0, 0.0])


def _activation(node: ir.Node) -> tuple[str, list[float]] | None:
    """Name and bounds of the activation that a node computes; None where convolutions cannot compute it."""
    if node.op_type in _NO_NUMBERS and (node.domain == DOMAIN or not (node.domain or node.attributes)):
        return _NO_NUMBERS[node.op_type], [0.0, 0.0]
    if node.domain:
        return None
    if node.op_type == "LeakyRelu":
        return "leaky", [float(node.attributes.get_float("alpha", 0.01)), 0.0]
    if node.op_type == "HardSigmoid":
        at = node.attributes
        return "hard_sigmoid", [float(at.get_float("alpha", 0.2)), float(at.get_float("beta", 0.5))]
    if node.op_type == "Clip":
        bounds = [array_of(value) for value in node.inputs[1:3]]
        if len(bounds) == 2 and all(bound is not None and bound.size == 1 for bound in bounds):
            return "clip", [float(bound.reshape(())) for bound in bounds]
    return None
