"""BatchNormalization behind a convolution → into its weights and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..model.ir import add_constant, array_of, constant, is_op, names_in, only_read_by, operand, swap
from ..utils.override import override
from ._base import Pass, PassResult

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["FoldBatchNorm"]

_LAYERS = ("Conv", "ConvTranspose")


class FoldBatchNorm(Pass):
    """Fold y = (conv(x) - mean) / sqrt(variance + eps) · scale + bias into the convolution, in double precision.

    A transposed convolution takes it as well. Only where nothing else reads the convolution's output, and all operands are
    constants. The tensor that stays has the batch norm's name.
    """

    name: ClassVar[str] = "fold-batch-norm"

    @override
    def call(self, model: ir.Model) -> PassResult:
        pairs = [
            (node.inputs[0].producer(), node)
            for node in model.graph
            if is_op(node, "BatchNormalization") and node.inputs[0] and not node.attributes.get_int("training_mode", 0)
        ]
        modified, taken = False, names_in(model.graph) if pairs else set()
        for conv, norm in pairs:
            if (
                conv is not None
                and any(is_op(conv, op) for op in _LAYERS)
                and only_read_by(conv, norm)
                and len(norm.outputs) == 1
            ):
                modified |= _fold(model.graph, conv, norm, taken)
        return PassResult(model, modified)


def _numbers(value: ir.Value | None) -> npt.NDArray[np.float64] | None:
    array = array_of(value)
    return None if array is None else array.astype(np.float64)


def _fold(graph: ir.Graph, conv: ir.Node, norm: ir.Node, taken: set[str | None]) -> bool:
    old_weight: Any = conv.inputs[1]
    old_bias: Any = operand(conv, 2)
    weight, bias = _numbers(old_weight), _numbers(old_bias)
    operands = [_numbers(value) for value in norm.inputs[1:]]
    if weight is None or any(value is None for value in operands) or (old_bias is not None and bias is None):
        return False
    scale, shift, mean, variance = (value for value in operands if value is not None)
    epsilon = norm.attributes.get_float("epsilon", 1e-5)
    with np.errstate(all="ignore"):  # a negative variance gives NaN, here as in a run
        factor = scale / np.sqrt(variance + epsilon)
        folded = _scaled(conv, weight, factor)
        shifted = shift + ((0 if bias is None else bias) - mean) * factor
    held: Any = constant(old_weight)
    named: Any = norm.inputs[2] if old_bias is None else old_bias
    conv.resize_inputs(3)
    for index, old, array in ((1, old_weight, folded), (2, named, shifted)):
        with np.errstate(over="ignore", invalid="ignore"):  # what is beyond float16 becomes infinite, as in a run
            array = array.astype(held.dtype.numpy())
        conv.replace_input_with(index, add_constant(graph, f"{old.name}_folded", array, taken))
    swap(graph, [norm], conv.outputs[0])
    return True


def _scaled(conv: ir.Node, weight: npt.NDArray[np.float64], factor: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The weights, each filter times its factor; those of a transposed convolution are (C, K / group, …)."""
    ones = [1] * (weight.ndim - 2)
    if is_op(conv, "Conv"):
        return weight * factor.reshape(-1, 1, *ones)
    group = conv.attributes.get_int("group", 1)
    parts = weight.reshape(group, -1, *weight.shape[1:]) * factor.reshape(group, 1, -1, *ones)
    return parts.reshape(weight.shape)
