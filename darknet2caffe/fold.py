"""Batch normalization in darknet's two forms, folded into a convolution or written so that others compute the same."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pytrtplugins.errors import UsageError

from .weights import FloatArray, Parameters

__all__ = ["BnEps", "batch_norm_form", "check_bn_eps", "fold"]

BnEps = Literal["darknet-cpu", "darknet-gpu"]
"""Darknet's CPU code divides by ``sqrt(variance) + 1e-6`` (src/blas.c, normalize_cpu), its CUDA code by
``sqrt(variance + 1e-5)`` (src/blas_kernels.cu, normalize_kernel); AlexeyAB's fork uses the second form everywhere."""


def check_bn_eps(bn_eps: str) -> None:
    """Require one of the two forms.

    Raises:
        UsageError: it is another text.
    """
    if bn_eps not in get_args(BnEps):
        raise UsageError(f"bn_eps={bn_eps!r}: expected one of {', '.join(get_args(BnEps))}")


def fold(parameters: Parameters, bn_eps: str) -> tuple[FloatArray, FloatArray]:
    """Weights and bias of the one convolution that equals convolution and batch normalization.

    Worked out in float64 and rounded once. Without batch normalization the arrays come back as they are.
    """
    weights, bias = parameters["weights"], parameters["biases"]
    if "scales" not in parameters:
        return weights, bias
    factor = parameters["scales"].astype(np.float64) / _deviation(parameters, bn_eps)
    folded = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
    shifted = bias - parameters["rolling_mean"].astype(np.float64) * factor
    return folded.astype(np.float32), shifted.astype(np.float32)


def batch_norm_form(parameters: Parameters, bn_eps: str) -> tuple[FloatArray, float]:
    """Variance and epsilon with which ``sqrt(variance + epsilon)`` is darknet's divisor."""
    if bn_eps == "darknet-gpu":
        return parameters["rolling_variance"], 1e-5
    epsilon = 1e-12  # the square of 1e-6, so that a variance of 0 stays 0
    return np.maximum(_deviation(parameters, bn_eps) ** 2 - epsilon, 0).astype(np.float32), epsilon


def _deviation(parameters: Parameters, bn_eps: str) -> npt.NDArray[np.float64]:
    variance: npt.NDArray[np.float64] = parameters["rolling_variance"].astype(np.float64)
    deviation: npt.NDArray[np.float64]
    deviation = np.sqrt(variance + 1e-5) if bn_eps == "darknet-gpu" else np.sqrt(variance) + 1e-6
    return deviation
