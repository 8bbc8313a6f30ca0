"""Formulas of what onnxruntime's optimizer fuses, in float64 with NumPy and PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["FUSED", "Attributes", "Formula", "Operands", "by_torch", "convolved", "pads_of", "product", "wide"]

Attributes = Mapping[str, Any]
Operands = Sequence[Any]
Formula = Callable[[Attributes, Operands], Sequence[Any]]


def wide(array: Any) -> Any:
    return np.asarray(array, np.float64)


def by_torch(name: str, *arrays: Any, **options: Any) -> Any:
    """A function of `torch.nn.functional` on float64 arrays."""
    import torch

    tensors = [None if array is None else torch.from_numpy(np.array(array, np.float64)) for array in arrays]
    return getattr(torch.nn.functional, name)(*tensors, **options).numpy()


def _operand(operands: Operands, index: int) -> Any:
    return operands[index] if index < len(operands) else None


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _gelu(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x = wide(operands[0]) + (0 if _operand(operands, 1) is None else wide(operands[1]))
    return [(0.5 * x * (1 + _erf(x / math.sqrt(2)))).astype(operands[0].dtype)]


def _fast_gelu(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x = wide(operands[0]) + (0 if _operand(operands, 1) is None else wide(operands[1]))
    result = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return [result.astype(operands[0].dtype)]


def _quick_gelu(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x = wide(operands[0])
    return [(x / (1 + np.exp(-attributes.get("alpha", 1.702) * x))).astype(operands[0].dtype)]


def _skip_norm(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x, skip, gamma, beta, bias = (*operands, None, None)[:5]
    total = wide(x) + wide(skip) + (0 if bias is None else wide(bias))
    mean = total.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + attributes.get("epsilon", 1e-12))
    result = (total - mean) * inverse * wide(gamma) + (0 if beta is None else wide(beta))
    outputs = (result.astype(x.dtype), mean.astype(np.float32), inverse.astype(np.float32), total.astype(x.dtype))
    return outputs


def _skip_simplified(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x, skip, gamma, bias = (*operands, None)[:4]
    total = wide(x) + wide(skip) + (0 if bias is None else wide(bias))
    mean = total.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((total**2).mean(-1, keepdims=True) + attributes.get("epsilon", 1e-12))
    result = (total * inverse * wide(gamma)).astype(x.dtype)
    return result, mean.astype(np.float32), inverse.astype(np.float32), total.astype(x.dtype)


def _activate(x: Any, kind: str, numbers: Mapping[str, float]) -> Any:
    alpha, beta, gamma = (numbers.get(name) for name in ("alpha", "beta", "gamma"))
    with np.errstate(all="ignore"):
        if kind == "LeakyRelu":
            return np.where(x < 0, x * (0.01 if alpha is None else alpha), x)
        if kind == "Clip":
            return np.clip(x, alpha, beta)
        if kind == "HardSigmoid":
            return np.clip((0.2 if alpha is None else alpha) * x + (0.5 if beta is None else beta), 0, 1)
        if kind == "Elu":
            return np.where(x < 0, (1.0 if alpha is None else alpha) * np.expm1(x), x)
        if kind == "ThresholdedRelu":
            return np.where(x > (1.0 if alpha is None else alpha), x, 0)
        if kind == "Selu":
            return gamma * np.where(x > 0, x, alpha * np.expm1(x))
        functions: dict[str, Callable[[Any], Any]] = {
            "": lambda x: x,
            "Relu": lambda x: np.maximum(x, 0),
            "Tanh": np.tanh,
            "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
            "Softplus": lambda x: np.logaddexp(0, x),
            "Softsign": lambda x: x / (1 + np.abs(x)),
        }
        return functions[kind](x)


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _numbers(attributes: Attributes) -> dict[str, float]:
    names = ("alpha", "beta", "gamma")
    return {name: attributes[f"activation_{name}"] for name in names if f"activation_{name}" in attributes}


def convolved(attributes: Attributes, x: Any, w: Any, bias: Any) -> Any:
    """A convolution, padded as ``pads`` or ``auto_pad`` says."""
    axes = w.ndim - 2
    strides, dilations = attributes.get("strides", [1] * axes), attributes.get("dilations", [1] * axes)
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    pads = pads_of(attributes, x.shape[2:], spans, strides)
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    options = {"stride": strides, "dilation": dilations, "groups": attributes.get("group", 1)}
    return by_torch(f"conv{axes}d", x, w, bias, **options)


def pads_of(
    attributes: Attributes, sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    axes, auto = len(sizes), text(attributes.get("auto_pad", ""))
    pads = attributes.get("pads", [0] * 2 * axes) if auto in ("", "NOTSET") else [0] * 2 * axes
    pairs = [(pads[axis], pads[axis + axes]) for axis in range(axes)]
    if auto.startswith("SAME"):
        totals = [
            max(0, (-(-size // stride) - 1) * stride + span - size)
            for size, span, stride in zip(sizes, spans, strides, strict=True)
        ]
        pairs = [(total // 2, total - total // 2) for total in totals]
        pairs = [pair[::-1] for pair in pairs] if auto == "SAME_LOWER" else pairs
    return pairs


def _fused_conv(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x, w, bias, z = (*operands, None, None)[:4]
    result = convolved(attributes, wide(x), wide(w), None if bias is None else wide(bias))
    result = result + (0 if z is None else wide(z))
    numbers = dict(zip(("alpha", "beta"), attributes.get("activation_params", []), strict=False))
    return [_activate(result, text(attributes.get("activation", "")), numbers).astype(x.dtype)]


def _to_first(array: Any) -> Any:
    return array if array is None or array.ndim < 3 else np.moveaxis(array, -1, 1)


def _nhwc_fused_conv(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    return [np.moveaxis(_fused_conv(attributes, [*map(_to_first, operands)])[0], 1, -1)]


def _fused_gemm(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    if operands[0].dtype.kind not in "fV":
        raise NotImplementedError
    a, b, c = (*operands, None)[:3]
    result = product(attributes, wide(a), wide(b)) * attributes.get("alpha", 1.0)
    result = result + (0 if c is None else wide(c) * attributes.get("beta", 1.0))
    return [_activate(result, text(attributes.get("activation", "")), _numbers(attributes)).astype(a.dtype)]


def product(attributes: Attributes, a: Any, b: Any) -> Any:
    return (a.T if attributes.get("transA") else a) @ (b.T if attributes.get("transB") else b)


def _fused_matmul(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    turned = []
    for letter, array in zip("AB", map(wide, operands), strict=True):
        if attributes.get(f"transBatch{letter}") and array.ndim > 2:
            array = np.moveaxis(array, 0, -2)
        turned.append(np.swapaxes(array, -1, -2) if attributes.get(f"trans{letter}") and array.ndim > 1 else array)
    product = np.matmul(*turned) * attributes.get("alpha", 1.0)
    return [_activate(product, text(attributes.get("activation", "")), _numbers(attributes)).astype(operands[0].dtype)]


FUSED: Mapping[str, Formula] = {
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "FusedMatMulActivation": _fused_matmul,
    "Gelu": _gelu,
    "NhwcFusedConv": _nhwc_fused_conv,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_simplified,
    "TransposeMatMul": _fused_matmul,
}
"""Operator → its formula."""
