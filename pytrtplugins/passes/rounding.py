"""Adaptive rounding: round weights to int8 codes, up or down, so that a layer's result changes least."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..model.ir import array_of, set_constant
from ..utils.optional import ir
from ..utils.override import override
from ._base import Pass, PassResult
from ._int8_demand import input_of
from .codes import quantize_weights

__all__ = ["AdaptiveRounding", "round_codes"]

_BLOCK = 64  # codes after which the error is carried on to all others at once
_DAMPING = 0.01  # of the mean of the Gram matrix's diagonal: inputs that were hardly seen may not steer


class AdaptiveRounding(Pass):
    """Round the weights of each convolution to int8 codes jointly, and write the dequantized weights.

    `quantize` with the same number of levels finds the same codes and scales again. Worth it where weights have 7 bits, on
    CPUs without VNNI: docs/lab/accuracy.md. The network in float computes what it will with int8 weights.

    Args:
        grams: Name of a convolution's result → (G, K, K) sums of x·xᵀ over its inputs, K of them for one result; G is 1, or the
            number of channels of a depthwise convolution. Convolutions that it lacks are left alone.
        levels: Largest code, 2..127; that with which the model is quantized.

    Source:
        E. Frantar and D. Alistarh, "Optimal Brain Compression", NeurIPS 2022, and E. Frantar et al., "GPTQ", ICLR 2023,
        which carries errors on in one order for all filters. GPTQ takes the factor of the inverse; that of the matrix
        itself gives the same codes.
    """

    name: ClassVar[str] = "adaptive-rounding"

    def __init__(self, grams: Mapping[str, npt.NDArray[np.floating[Any]]], levels: int = 127) -> None:
        self.grams, self.levels = grams, levels

    @override
    def call(self, model: ir.Model) -> PassResult:
        changed = False
        for node in model.graph:
            gram = self.grams.get(str(node.outputs[0].name))
            weights = None if gram is None else array_of(input_of(node, 1))
            if gram is not None and weights is not None:
                set_constant(input_of(node, 1), _round_weights(weights, gram, self.levels))
                changed = True
        return PassResult(model, changed)


def round_codes(
    steps: npt.NDArray[np.floating[Any]], gram: npt.NDArray[np.floating[Any]], levels: int
) -> npt.NDArray[np.float64]:
    """Round rows of weights to whole codes so that their products with inputs of a given Gram matrix change least.

    Args:
        steps: (F, K) weights in units of their row's scale, -levels..levels.
        gram: (K, K) sum of x·xᵀ.
        levels: Largest code. Weights of exactly that magnitude keep it, and the row its scale.

    Returns:
        (F, K) whole numbers in -levels..levels.

    Raises:
        UsageError: the Gram matrix is of another size.
    """
    count = steps.shape[1]
    if gram.shape != (count, count):
        raise UsageError(f"rounding: gram: expected shape {(count, count)}, found {gram.shape}")
    order = np.argsort(
        -np.diag(gram), kind="stable"
    )  # those that weigh most are rounded while others can make up for it
    targets = steps.T[order].astype(np.float64)  # (K, F): what one step rounds lies together
    fixed = np.abs(np.abs(targets) - levels) < 1e-3
    damped = gram[np.ix_(order[::-1], order[::-1])].astype(np.float64)
    damped[np.diag_indices(count)] += _DAMPING * np.diag(damped).mean() or 1.0
    # upper triangular, and carry @ carry.T is damped, in the order
    carry = np.ascontiguousarray(np.linalg.cholesky(damped)[::-1, ::-1])
    carry /= np.diag(carry).copy()  # what the error of each weight asks of every later one
    best, codes = targets.copy(), np.rint(targets)
    for first in range(0, count, _BLOCK):
        last = min(first + _BLOCK, count)
        errors = np.empty((last - first, best.shape[1]))
        for k in range(first, last):
            best[k] += carry[first:k, k] @ errors[: k - first]
            codes[k] = np.where(fixed[k], codes[k], np.clip(np.rint(best[k]), -levels, levels))
            errors[k - first] = targets[k] - codes[k]
        best[last:] += carry[first:last, last:].T @ errors
    result = np.empty(steps.shape)
    result[:, order] = codes.T
    return result


def _round_weights(
    weights: npt.NDArray[np.float32], gram: npt.NDArray[np.floating[Any]], levels: int
) -> npt.NDArray[np.float32]:
    scales = quantize_weights(weights, 0, levels)[1][:, None]
    rows = weights.reshape(len(weights), -1)
    steps = rows / scales
    if len(gram) == 1:
        codes = round_codes(steps, gram[0], levels)
    else:
        codes = np.concatenate(
            [round_codes(steps[k : k + 1], gram_of_row, levels) for k, gram_of_row in enumerate(gram)]
        )
    rounded: npt.NDArray[np.float32] = (codes * scales).astype(np.float32).reshape(weights.shape)
    return rounded
