"""Formulas of onnxruntime's operators on codes: the operator on numbers, between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .fused_formulas import Attributes, Formula, Operands, convolved, pads_of, product, wide

__all__ = ["CODES", "dequantize"]


def dequantize(codes: Any, scale: Any, zero: Any, axis: int = -1) -> Any:
    """Numbers of codes; a scale of several numbers belongs to an axis."""
    along = [-1 if index == axis % codes.ndim else 1 for index in range(codes.ndim)] if codes.ndim else []
    scale, zero = (
        part.reshape(along if part.size > 1 else ()) for part in (wide(scale), wide(0 if zero is None else zero))
    )
    return (wide(codes) - zero) * scale


def _quantize(numbers: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    limits = np.iinfo(dtype)
    shifted = np.rint(numbers / wide(scale).reshape(())) + (0 if zero is None else wide(zero).reshape(()))
    return np.clip(shifted, limits.min, limits.max).astype(dtype)


def _two(function: Callable[[Any, Any], Any]) -> Formula:
    def formula(attributes: Attributes, operands: Operands) -> Sequence[Any]:
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (*operands, None)[:8]
        numbers = function(dequantize(a, a_scale, a_zero), dequantize(b, b_scale, b_zero))
        return [_quantize(numbers, scale, zero, a.dtype)]

    return formula


def _one(function: Callable[[Attributes, Any], Any]) -> Formula:
    def formula(attributes: Attributes, operands: Operands) -> Sequence[Any]:
        x, x_scale, x_zero, scale, zero = (*operands, None)[:5]
        return [_quantize(function(attributes, dequantize(x, x_scale, x_zero)), scale, zero, x.dtype)]

    return formula


def _softmax(attributes: Attributes, x: Any) -> Any:
    axis = attributes.get("axis", -1) % x.ndim
    rows = x if attributes["opset"] >= 13 else x.reshape(math.prod(x.shape[:axis]), -1)
    axis = axis if attributes["opset"] >= 13 else 1
    shares = np.exp(rows - rows.max(axis, keepdims=True))
    return (shares / shares.sum(axis, keepdims=True)).reshape(x.shape)


def _reduce_mean(attributes: Attributes, x: Any) -> Any:
    return x.mean(tuple(attributes["axes"]), keepdims=bool(attributes["keepdims"]))


def _global_average(attributes: Attributes, x: Any) -> Any:
    last = attributes.get("channels_last", 0)
    return x.mean(tuple(range(1, x.ndim - 1)) if last else tuple(range(2, x.ndim)), keepdims=True)


def _windows(attributes: Attributes, x: Any, reduce: Callable[[Any, int], Any]) -> Any:
    """A reduction of each window of an image whose channels stand first; what lies outside is NaN."""
    kernel = attributes["kernel_shape"]
    axes = len(kernel)
    strides, dilations = attributes.get("strides", [1] * axes), attributes.get("dilations", [1] * axes)
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    pads, sizes = pads_of(attributes, x.shape[2:], spans, strides), []
    for size, pair, span, stride in zip(x.shape[2:], pads, spans, strides, strict=True):
        room = size + sum(pair) - span
        count = (-(-room // stride) if attributes.get("ceil_mode") else room // stride) + 1
        if (count - 1) * stride >= size + pair[0]:
            count -= 1  # a window that begins behind the image
        sizes.append(count)
    padded: Any = np.pad(
        x, [(0, 0), (0, 0), *((a, b + s) for (a, b), s in zip(pads, spans, strict=True))], constant_values=np.nan
    )
    result: Any = np.empty((*x.shape[:2], *sizes))
    for place in itertools.product(*map(range, sizes)):
        window = tuple(
            slice(p * s, p * s + span, d) for p, s, span, d in zip(place, strides, spans, dilations, strict=True)
        )
        result[(..., *place)] = reduce(padded[(..., *window)].reshape(*x.shape[:2], -1), math.prod(kernel))
    return result


def _average_pool(attributes: Attributes, x: Any) -> Any:
    counts_all = attributes.get("count_include_pad", 0)
    if counts_all and attributes.get("ceil_mode", 0):
        raise NotImplementedError
    last = attributes.get("channels_last", 0)
    reduce = (
        (lambda window, count: np.nansum(window, -1) / count)
        if counts_all
        else lambda window, count: np.nanmean(window, -1)
    )
    result = _windows(attributes, np.moveaxis(x, -1, 1) if last else x, reduce)
    return np.moveaxis(result, 1, -1) if last else result


def _nhwc_max_pool(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x = operands[0]
    result = _windows(attributes, np.moveaxis(wide(x), -1, 1), lambda window, count: np.nanmax(window, -1))
    return [np.moveaxis(result, 1, -1).astype(x.dtype)]


def _concat(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    parts = [dequantize(*operands[index : index + 3]) for index in range(2, len(operands), 3)]
    return [_quantize(np.concatenate(parts, attributes["axis"]), operands[0], operands[1], operands[2].dtype)]


def _where(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    condition, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = operands
    numbers = np.where(condition, dequantize(a, a_scale, a_zero), dequantize(b, b_scale, b_zero))
    return [_quantize(numbers, scale, zero, a.dtype)]


def _qlinear_conv(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = (*operands, None)[:9]
    last = attributes.get("channels_last", 0)
    numbers = dequantize(x, x_scale, x_zero)
    if bias is not None:
        bias = wide(bias) * wide(x_scale).reshape(()) * wide(w_scale)
        bias = np.broadcast_to(bias, (w.shape[0],))
    weights = dequantize(w, w_scale, w_zero, 0)
    result = convolved(attributes, np.moveaxis(numbers, -1, 1) if last else numbers, weights, bias)
    return [_quantize(np.moveaxis(result, 1, -1) if last else result, scale, zero, zero.dtype)]


def _qgemm(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    a, a_scale, a_zero, b, b_scale, b_zero, c, scale, zero = (*operands, *[None] * 3)[:9]
    axis, alpha = 0 if attributes.get("transB") else 1, attributes.get("alpha", 1.0)
    numbers = alpha * product(attributes, dequantize(a, a_scale, a_zero), dequantize(b, b_scale, b_zero, axis))
    if c is not None:
        numbers = numbers + wide(c) * alpha * wide(a_scale).reshape(()) * wide(b_scale)
    return [numbers.astype(np.float32) if scale is None else _quantize(numbers, scale, zero, zero.dtype)]


def _integer_to_float(attributes: Attributes, operands: Operands) -> Sequence[Any]:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (*operands, *[None] * 3)[:7]
    product = dequantize(a, a_scale, a_zero) @ dequantize(b, b_scale, b_zero)
    return [(product + (0 if bias is None else wide(bias))).astype(a_scale.dtype)]


CODES: Mapping[str, Formula] = {
    "MatMulIntegerToFloat": _integer_to_float,
    "NhwcMaxPool": _nhwc_max_pool,
    "QGemm": _qgemm,
    "QLinearAdd": _two(np.add),
    "QLinearAveragePool": _one(_average_pool),
    "QLinearConcat": _concat,
    "QLinearConv": _qlinear_conv,
    "QLinearGlobalAveragePool": _one(_global_average),
    "QLinearLeakyRelu": _one(lambda attributes, x: np.where(x < 0, x * attributes.get("alpha", 0.01), x)),
    "QLinearMul": _two(np.multiply),
    "QLinearReduceMean": _one(_reduce_mean),
    "QLinearSigmoid": _one(lambda attributes, x: 1 / (1 + np.exp(-x))),
    "QLinearSoftmax": _one(_softmax),
    "QLinearWhere": _where,
}
"""Operator → its formula."""
