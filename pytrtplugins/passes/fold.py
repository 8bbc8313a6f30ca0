"""Fold a BatchNormalization into the weights and bias of the convolution or MatMul before it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..model.ir import add_constant, array_of, constant, dims_of, is_op, names_in, only_read_by, operand, swap
from ..model.operator_traits import RECURRENT, Trait, operators
from ..utils.optional import ir
from ..utils.override import override
from ._base import Pass, PassResult

__all__ = ["FoldBatchNorm"]

_LAYERS = operators(Trait.WEIGHTED).difference(RECURRENT)


class FoldBatchNorm(Pass):
    """Fold y = (layer(x) - mean) / sqrt(variance + eps) · scale + bias into the layer, in double precision.

    The layer is a convolution, a transposed one, a Gemm, or a MatMul, which becomes a Gemm to have a bias. The tensor that stays has
    the batch norm's name. Not folded are (1) a layer whose output something else reads; (2) operands that are no constants; (3) a MatMul
    that is not known to give (N, channels), since of other ranks the channels are not the last axis; (4) a Gemm whose bias differs from
    row to row.
    """

    name: ClassVar[str] = "fold-batch-norm"

    @override
    def call(self, model: ir.Model) -> PassResult:
        pairs = [
            (node.inputs[0].producer(), node)
            for node in model.graph
            if is_op(node, "BatchNormalization") and node.inputs[0] and not node.attributes.get_int("training_mode", 0)
        ]
        modified, used_names = False, names_in(model.graph) if pairs else set()
        for layer, norm in pairs:
            if (
                layer is not None
                and any(is_op(layer, op) for op in _LAYERS)
                and only_read_by(layer, norm)  # (1)
                and len(norm.outputs) == 1
            ):
                modified |= _fold(model.graph, layer, norm, used_names)
        return PassResult(model, modified)


def _numbers(value: ir.Value | None) -> npt.NDArray[np.float64] | None:
    array = array_of(value)
    return None if array is None else array.astype(np.float64)


def _fold(graph: ir.Graph, layer: ir.Node, norm: ir.Node, used_names: set[str | None]) -> bool:
    old_weight: Any = layer.inputs[1]
    old_bias: Any = operand(layer, 2)
    weight, bias = _numbers(old_weight), _numbers(old_bias)
    operands = [_numbers(value) for value in norm.inputs[1:]]
    if weight is None or any(value is None for value in operands) or (old_bias is not None and bias is None):  # (2)
        return False
    scale, shift, mean, variance = (value for value in operands if value is not None)
    if _is_product(layer) and not _gives_channels(layer, weight, bias, scale.size):  # (3), (4)
        return False
    epsilon = norm.attributes.get_float("epsilon", 1e-5)
    with np.errstate(all="ignore"):  # a negative variance gives NaN, here as in a run
        factor = scale / np.sqrt(variance + epsilon)
        folded = _scale_filters(layer, weight, factor)
        added = 0 if bias is None else bias.reshape(-1) * layer.attributes.get_float("beta", 1.0)
        shifted = shift + (added - mean) * factor
    weights: Any = constant(old_weight)
    named: Any = norm.inputs[2] if old_bias is None else old_bias
    _take_bias(layer)
    for index, old, array in ((1, old_weight, folded), (2, named, shifted)):
        with np.errstate(over="ignore", invalid="ignore"):  # what is beyond float16 becomes infinite, as in a run
            array = array.astype(weights.dtype.numpy())
        layer.replace_input_with(index, add_constant(graph, f"{old.name}_folded", array, used_names))
    swap(graph, [norm], layer.outputs[0])
    return True


def _is_product(layer: ir.Node) -> bool:
    return is_op(layer, "Gemm") or is_op(layer, "MatMul")


def _gives_channels(
    layer: ir.Node, weight: npt.NDArray[np.float64], bias: npt.NDArray[np.float64] | None, channels: int
) -> bool:
    """Whether a product gives (N, channels), with a bias that is the same for each row."""
    if is_op(layer, "MatMul"):
        ranks = {len(dims) for dims in map(dims_of, (layer.inputs[0], layer.outputs[0])) if dims is not None}
        return ranks == {2} and weight.ndim == 2
    return bias is None or bias.size == 1 or bias.size == bias.shape[-1] == channels


def _scale_filters(
    layer: ir.Node, weight: npt.NDArray[np.float64], factor: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The weights with each filter multiplied by its factor; transposed convolutions have (C, K / group, …), MatMul (K, C)."""
    if _is_product(layer):
        return weight * (factor[:, None] if layer.attributes.get_int("transB", 0) else factor)
    ones = [1] * (weight.ndim - 2)
    if is_op(layer, "Conv"):
        return weight * factor.reshape(-1, 1, *ones)
    group = layer.attributes.get_int("group", 1)
    parts = weight.reshape(group, -1, *weight.shape[1:]) * factor.reshape(group, 1, -1, *ones)
    return parts.reshape(weight.shape)


def _take_bias(layer: ir.Node) -> None:
    """Make room for a bias that is added as it is."""
    layer.resize_inputs(3)
    if is_op(layer, "MatMul"):
        layer.op_type = "Gemm"
    layer.attributes.pop("beta", None)
