"""Batch normalization in darknet's two forms: fold it into a convolution, or write it so that other programs agree."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pytrtplugins.errors import UsageError

from .weights import FloatArray, Parameters

__all__ = ["BnEps", "batch_norm_form", "check_bn_eps", "folded_bias", "folded_weights"]

BnEps = Literal["darknet-cpu", "darknet-gpu"]
"""Darknet's CPU code divides by ``sqrt(variance) + 1e-6`` (src/blas.c, normalize_cpu), its CUDA code by
``sqrt(variance + 1e-5)`` (src/blas_kernels.cu, normalize_kernel); AlexeyAB's fork uses the second form everywhere."""

_BLOCK = 1 << 20


def check_bn_eps(bn_eps: str | None, dialect: str = "pjreddie") -> BnEps:
    """Check a form of batch normalization's epsilon; None is that of the dialect's CPU code."""
    if bn_eps is None:
        return "darknet-gpu" if dialect == "alexeyab" else "darknet-cpu"
    for form in get_args(BnEps):
        if bn_eps == form:
            return form  # type: ignore[no-any-return]
    raise UsageError(f"bn_eps={bn_eps!r}: expected one of {', '.join(get_args(BnEps))}")


def folded_weights(parameters: Parameters, bn_eps: str, *, axis: int) -> FloatArray:
    """The weights of the one layer that equals it and its batch normalization; as they are without one.

    Worked out in float64 in blocks, so that no second copy is made, and rounded once. ``axis`` is the weights' axis of filters:
    0, or 1 for a transposed convolution.
    """
    weights = parameters["weights"]
    if "scales" not in parameters:
        return weights
    shape = [-1 if place == axis else 1 for place in range(weights.ndim)]
    factor = np.broadcast_to(
        _factor(parameters, bn_eps).reshape(shape), (*weights.shape[: axis + 1], *shape[axis + 1 :])
    )
    folded = np.empty(weights.shape, np.float32)
    rows = max(1, _BLOCK * len(weights) // max(1, weights.size))
    for start in range(0, len(weights), rows):
        block = slice(start, start + rows)
        folded[block] = _round_to_float32(weights[block] * factor[block], "weights")
    return folded


def folded_bias(parameters: Parameters, bn_eps: str) -> FloatArray:
    """The bias of that layer, worked out in float64 and rounded once."""
    if "scales" not in parameters:
        return parameters["biases"]
    shifted = parameters["biases"] - parameters["rolling_mean"].astype(np.float64) * _factor(parameters, bn_eps)
    return _round_to_float32(shifted, "biases")


def batch_norm_form(parameters: Parameters, bn_eps: str) -> tuple[FloatArray, float]:
    """Variance and epsilon with which ``sqrt(variance + epsilon)`` is darknet's divisor."""
    if bn_eps == "darknet-gpu":
        return parameters["rolling_variance"], 1e-5
    epsilon = 1e-12  # the square of 1e-6, so that a variance of 0 stays 0
    return _round_to_float32(np.maximum(_deviation(parameters, bn_eps) ** 2 - epsilon, 0), "variances"), epsilon


def _round_to_float32(values: npt.NDArray[np.float64], what: str) -> FloatArray:
    """Round values to float32 once; values beyond its range are refused."""
    with np.errstate(over="ignore"):
        rounded: FloatArray = values.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise UsageError(
            f"batch normalization: {what} of up to {np.abs(values).max():.2e} come out of the fold, and float32 ends at"
            f" {np.finfo(np.float32).max:.2e}.\nDo: check the weights; or convert with fold=False (--no-fold)."
        )
    return rounded


def _factor(parameters: Parameters, bn_eps: str) -> npt.NDArray[np.float64]:
    factor: npt.NDArray[np.float64] = parameters["scales"].astype(np.float64) / _deviation(parameters, bn_eps)
    return factor


def _deviation(parameters: Parameters, bn_eps: str) -> npt.NDArray[np.float64]:
    variance: npt.NDArray[np.float64] = parameters["rolling_variance"].astype(np.float64)
    deviation: npt.NDArray[np.float64]
    deviation = np.sqrt(variance + 1e-5) if bn_eps == "darknet-gpu" else np.sqrt(variance) + 1e-6
    return deviation
