"""Cross-layer equalization: rescale channels between two convolutions, so that one int8 scale suits them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..model.ir import operand, set_constant
from ..utils.optional import ir
from ._base import Pass, PassResult

__all__ = ["CrossLayerEqualization", "EqualizeResult"]

_HOMOGENEOUS = ("Identity", "LeakyRelu", "MaxPool", "PRelu", "Relu")
"""Operators across which this pass moves factors: f(s·x) = s·f(x) for s > 0, channel by channel. Others have that too, such as Abs."""
_LARGEST = 5  # factors are 2**-5 .. 2**5: a channel that calibration hardly saw still has room for larger values


@dataclass(frozen=True)
class EqualizeResult(PassResult):
    """Result of `CrossLayerEqualization`.

    Attributes:
        model: The same network with other weights.
        modified: Whether any weight changed.
        pairs: (first, second) names of the convolutions between which channels were rescaled.
    """

    pairs: tuple[tuple[str, str], ...] = ()


class CrossLayerEqualization(Pass):
    """Divide the channels between two convolutions by a factor each, and multiply the second one's weights by them.

    In int8 all channels of a tensor share one scale: a channel whose values are a hundredth of the largest channel's has
    one or two steps left. Here every channel gets a range near the largest one's; the network in float computes the
    same. Factors are powers of two, which change no bit of float32's results, unless a number leaves its range.

    - Where: a convolution, then any of LeakyRelu, Relu, PRelu, MaxPool, then a convolution, depthwise ones included, as
      long as nobody else reads the tensors between. What a Concat, an Add, a route or a plugin reads is left alone.
    - Depthwise second convolution: every channel is brought to the full range, as the weights have a scale for each.
    - Else the factor is sqrt(range of the channel / range of the weights that read it), since larger factors would
      take from the weights' precision what they give to the activations.

    Give weights one scale for each output channel afterwards (`quantize` does), and calibrate the new model: its
    tensors have other ranges.

    Args:
        maxima: Tensor → (C,) the largest magnitude in each channel, as `ChannelMaximaCalibrator` measures it. Tensors that
            it lacks are left alone.

    Source:
        M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019. There a
        channel's range is estimated from the weights of the first layer; measured, it gains 1 to 3 dB more on
        Yolo-Fastest.
    """

    name: ClassVar[str] = "cross-layer-equalization"

    def __init__(self, maxima: Mapping[str, npt.NDArray[np.floating[Any]]]) -> None:
        self.maxima = maxima

    def call(self, model: ir.Model) -> EqualizeResult:
        """Change the weights in place."""
        pairs = []
        for second in model.graph:
            first = _first_of_pair(second)
            maxima = None if first is None else self.maxima.get(str(second.inputs[0].name))  # type: ignore[union-attr]
            if first is None or maxima is None:
                continue
            factors = _factors(np.asarray(maxima, np.float64), first, second)
            if factors is not None and (factors != 1).any():
                _scale(first.inputs[1], 1 / factors, 0)
                _scale(operand(first, 2), 1 / factors, 0)
                _scale(second.inputs[1], factors, 0 if _is_depthwise(second) else 1)
                pairs.append((str(first.name), str(second.name)))
        return EqualizeResult(model, bool(pairs), pairs=tuple(pairs))


def _first_of_pair(second: ir.Node) -> ir.Node | None:
    """The convolution whose channels may be rescaled before this one; None: there is none."""
    if not _is_convolution(second) or second.inputs[0] is None:
        return None
    value = second.inputs[0]
    while len(value.uses()) == 1 and not value.is_graph_output():
        node = value.producer()
        if node is None or _is_convolution(node):
            return node
        if node.domain != "" or node.op_type not in _HOMOGENEOUS or len(node.outputs) != 1 or node.inputs[0] is None:
            return None
        value = node.inputs[0]
    return None


def _is_convolution(node: ir.Node) -> bool:
    """Whether it is a convolution with its own float32 weights, of one group or depthwise."""
    if node.op_type != "Conv" or node.domain != "" or _weights(node.inputs[1]) is None:
        return False
    if len(node.inputs) > 2 and node.inputs[2] is not None and _weights(node.inputs[2]) is None:
        return False
    return node.attributes.get_int("group", 1) == 1 or _is_depthwise(node)


def _is_depthwise(node: ir.Node) -> bool:
    """Whether each output channel depends on the same input channel alone."""
    weights, groups = _weights(node.inputs[1]), node.attributes.get_int("group", 1)
    return weights is not None and weights.shape[:2] == (groups, 1)


def _weights(value: ir.Value | None) -> npt.NDArray[np.float32] | None:
    """Values of an initializer that one node reads; None of anything else."""
    if value is None or not value.is_initializer() or len(value.uses()) != 1 or value.const_value is None:
        return None
    array = value.const_value.numpy()
    return array if array.dtype == np.float32 and np.isfinite(array).all() else None


def _factors(maxima: npt.NDArray[np.float64], first: ir.Node, second: ir.Node) -> npt.NDArray[np.float64] | None:
    """Divisors of the channels: powers of two; None if the channels do not match."""
    first_weights, second_weights = _weights(first.inputs[1]), _weights(second.inputs[1])
    if first_weights is None or second_weights is None or maxima.shape != first_weights.shape[:1]:
        return None
    weights = np.ones_like(maxima)
    if not _is_depthwise(second):
        if second_weights.shape[1] != maxima.size:
            return None
        largest = np.abs(second_weights).max(axis=(*range(1, second_weights.ndim),), keepdims=True)
        shares = np.abs(second_weights) / np.where(largest > 0, largest, 1)
        weights = shares.max(axis=(0, *range(2, second_weights.ndim)))
    used = (maxima > 0) & (weights > 0)
    if not used.any():
        return None
    ranges = np.log2(maxima[used])
    exponents = np.zeros_like(maxima)
    exponents[used] = ranges if _is_depthwise(second) else (ranges - np.log2(weights[used])) / 2
    exponents[used] += (ranges - exponents[used]).max() - ranges.max()  # the tensor's own range stays
    factors: npt.NDArray[np.float64] = 2.0 ** np.clip(np.ceil(exponents), -_LARGEST, _LARGEST)
    return factors


def _scale(value: ir.Value | None, factors: npt.NDArray[np.float64], axis: int) -> None:
    """Multiply constants by a factor for each index of an axis."""
    array = _weights(value)
    if value is None or array is None:
        return
    shape = [-1 if k == axis else 1 for k in range(array.ndim)]
    set_constant(value, (array * factors.reshape(shape)).astype(np.float32))
