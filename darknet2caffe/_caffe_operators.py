"""Convert caffe's layers with windows or weights to ONNX operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._caffe_graph import CaffeGraph, CaffeLayer, Value, converts
from ._caffe_writer import pooled_size
from ._onnx_writer import NEAREST
from .prototxt import Message
from .weights import FloatArray

__all__: list[str] = []

_IGNORED = frozenset(["weight_filler", "bias_filler", "filler", "engine", "moving_average_fraction", "force_nd_im2col"])
"""Fields of training, or of how something is computed."""

Pair = tuple[int, int]


@converts("Convolution", "Deconvolution")
def _convolution(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    p, x = layer.parameters("convolution_param"), _map(layer)
    plain, (n, c, h, w) = layer.type == "Convolution", x.dims
    filters, groups, biased = p.integer("num_output", 0), p.integer("group", 1, minimum=1), p.flag("bias_term", True)
    kernel, stride, pad = _pair(layer, p, "kernel", None), _pair(layer, p, "stride", 1), _pair(layer, p, "pad", 0)
    dilation = _pair(layer, p, "dilation", 1)
    if p.integer("axis", 1) != 1 or filters < 1 or filters % groups or c % groups:
        layer.fail(
            f"num_output={filters} group={groups} on {c} channels: one does not divide the other, or axis is not 1"
        )
    p.finish(_IGNORED)
    shape = (filters, c // groups, *kernel) if plain else (c, filters // groups, *kernel)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = list(zip((h, w), pad, spans, stride, strict=True))
    out = [(i + 2 * p - k) // s + 1 if plain else (i - 1) * s + k - 2 * p for i, p, k, s in sizes]
    result = layer.result((n, filters, *out))
    weights, *bias = layer.arrays(shape, *([(filters,)] if biased else []))
    factor = weights.flat[0]
    side_by_side = kernel == stride == (stride[0], stride[0]) and (pad, dilation) == ((0, 0), (1, 1))
    if not plain and not biased and filters == c == groups and side_by_side and (weights == factor).all():
        return [_repeat(layer, graph, x, stride[0], factor)]
    inputs = [x.name, graph.constant(f"{layer.name}.weights", weights)]
    inputs += [graph.constant(f"{layer.name}.biases", array) for array in bias]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": [*pad, *pad]}
    if plain or groups != 1:
        attributes["group"] = groups
    if dilation != (1, 1):
        attributes["dilations"] = dilation
    graph.node("Conv" if plain else "ConvTranspose", inputs, layer.outputs[0], **attributes)
    return [result]


def _repeat(layer: CaffeLayer, graph: CaffeGraph, x: Value, stride: int, factor: np.float32) -> Value:
    """A deconvolution whose windows are side by side, and all of one value, repeats each value."""
    output, top = layer.outputs[0], layer.tops[0]
    result = output if factor == 1 else graph.unique(f"{top}.unscaled")
    scales = graph.constant(f"{top}.scales", np.array([1, 1, stride, stride], np.float32))
    graph.node("Resize", [x.name, "", scales], result, **NEAREST)
    if factor != 1:
        graph.node("Mul", [result, graph.constant(f"{top}.scale", factor)], output)
    n, c, h, w = x.dims
    return layer.result((n, c, h * stride, w * stride))


@converts("InnerProduct")
def _inner_product(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    p, (x,) = layer.parameters("inner_product_param"), layer.bottoms
    outputs, biased, transpose = p.integer("num_output", 0), p.flag("bias_term", True), p.flag("transpose", False)
    if layer.axis(p.integer("axis", 1, minimum=-32, maximum=32), len(x.dims)) != 1:
        layer.fail("only axis: 1 is converted")
    p.finish(_IGNORED)
    inputs = int(np.prod(x.dims[1:], dtype=object))
    shape = (inputs, outputs) if transpose else (outputs, inputs)
    result = layer.result((x.dims[0], outputs))
    weights, *bias = layer.arrays(shape, *([(outputs,)] if biased else []))
    flat = graph.node("Flatten", [x.name], graph.unique(f"{layer.name}.flat"), axis=1)
    names = [graph.constant(f"{layer.name}.weights", weights)]
    names += [graph.constant(f"{layer.name}.biases", array) for array in bias]
    graph.node("Gemm", [flat, *names], layer.outputs[0], **({} if transpose else {"transB": 1}))
    return [result]


@converts("BatchNorm")
def _batch_norm(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    """BatchNorm, fused with the Scale layer after it if there is one."""
    p, (x,), top = layer.parameters("batch_norm_param"), layer.bottoms, layer.tops[0]
    if not p.flag("use_global_stats", True):
        layer.fail("use_global_stats: false normalizes by the batch, which is training")
    epsilon = p.number("eps", 1e-5)
    p.finish(_IGNORED)
    if len(x.dims) < 2:
        layer.fail("a blob without an axis of channels")
    channels = x.dims[1]
    mean, variance, weight = layer.arrays((channels,), (channels,), (1,))
    if weight[0] != 1:  # of the sums; 0: there were none
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            factor = np.float32(0) if weight[0] == 0 else np.float32(1) / weight[0]
            mean, variance = mean * factor, variance * factor
    if epsilon < 0 or not (np.isfinite(mean).all() and np.isfinite(variance).all() and variance.min() >= 0):
        layer.fail(f"its mean or variance is not a finite number, its variance negative, or eps ({epsilon:g})")
    scales, biases = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    if layer.scale is not None:
        scales, *bias = _scale_arrays(layer.scale, (channels,))
        biases = bias[0] if bias else biases
    arrays = {"scales": scales, "biases": biases, "rolling_mean": mean, "rolling_variance": variance}
    names = [graph.constant(f"{top}.{name}", array) for name, array in arrays.items()]
    graph.node("BatchNormalization", [x.name, *names], layer.outputs[0], epsilon=epsilon)
    return [layer.result(x.dims)]


@converts("Scale", bottoms=None)
def _scale(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    """Scale by weights or by a second blob, along an axis and those after it."""
    p, (x, *others) = layer.parameters("scale_param"), layer.bottoms
    axis, biased = layer.axis(p.integer("axis", 1, minimum=-32, maximum=32), len(x.dims)), p.flag("bias_term", False)
    if len(others) > 1:
        layer.fail("it reads more than two blobs")
    count = p.integer("num_axes", 1, minimum=-1, maximum=32)
    covered = x.dims[axis:] if count == -1 else x.dims[axis : axis + count]
    p.finish(_IGNORED)
    if others:
        covered = others[0].dims
        factors = _broadcast(layer, graph, others[0], axis, len(x.dims))
        bias = layer.arrays(*([covered] if biased else []))
    else:
        scale, *bias = layer.arrays(covered, *([covered] if biased else []))
        factors = graph.constant(f"{layer.name}.scale", _spread(scale, axis, x))
    if x.dims[axis : axis + len(covered)] != covered:
        layer.fail(f"factors of {covered} do not fit {x.dims} at axis {axis}")
    result = graph.unique(f"{layer.outputs[0]}.unbiased") if bias else layer.outputs[0]
    graph.node("Mul", [x.name, factors], result)
    if bias:
        graph.node("Add", [result, graph.constant(f"{layer.name}.bias", _spread(bias[0], axis, x))], layer.outputs[0])
    return [layer.result(x.dims)]


@converts("PReLU")
def _prelu(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    p, (x,) = layer.parameters("prelu_param"), layer.bottoms
    shared = p.flag("channel_shared", False)
    p.finish(_IGNORED)
    (slopes,) = layer.arrays((1,) if shared else x.dims[1:2])
    name = graph.constant(f"{layer.name}.slopes", slopes if shared else _spread(slopes, 1, x))
    graph.node("PRelu", [x.name, name], layer.outputs[0])
    return [layer.result(x.dims)]


@converts("Pooling")
def _pooling(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    """Pooling; sizes are rounded up unless round_mode is FLOOR (src/caffe/layers/pooling_layer.cpp, Reshape)."""
    p, x, output = layer.parameters("pooling_param"), _map(layer), layer.outputs[0]
    kind = p.choice("pool", ("MAX", "AVE", "STOCHASTIC"), "MAX")
    if kind == "STOCHASTIC":
        layer.fail("stochastic pooling belongs to training")
    is_global, up = p.flag("global_pooling", False), p.choice("round_mode", ("CEIL", "FLOOR"), "CEIL") == "CEIL"
    stride, pad = _pair(layer, p, "stride", 1), _pair(layer, p, "pad", 0)
    if is_global:
        if (stride, pad) != ((1, 1), (0, 0)) or any(map(p.has, ("kernel_size", "kernel_h", "kernel_w"))):
            layer.fail("global_pooling with a window")
        p.finish(_IGNORED)
        graph.node("GlobalMaxPool" if kind == "MAX" else "GlobalAveragePool", [x.name], output)
        return [layer.result((*x.dims[:2], 1, 1))]
    kernel = _pair(layer, p, "kernel", None)
    p.finish(_IGNORED)
    sizes = list(zip(x.dims[2:], pad, kernel, stride, strict=True))
    if any(p and p >= k for _, p, k, _ in sizes):
        layer.fail(f"padding {pad} is as large as the window {kernel}, which caffe refuses")
    out = [pooled_size(*size, padded=any(pad), up=up) for size in sizes]
    high = [max(0, (o - 1) * s + k - p - i) for o, (i, p, k, s) in zip(out, sizes, strict=True)]
    if any((o - 1) * s - p >= i for o, (i, p, _, s) in zip(out, sizes, strict=True)):
        layer.fail("its last window lies outside the map")
    window: dict[str, Any] = {"kernel_shape": kernel, "strides": stride}
    if kind == "MAX":
        window["pads"] = [*pad, *high]
    elif any(pad) or any(high):
        if any(pad) and any(h > p for h, p in zip(high, pad, strict=True)):
            layer.fail("its last mean is of padding in part, and of less than a window; ONNX has no such mean")
        window |= {"pads": [*pad, *high], "count_include_pad": int(any(pad))}
    graph.node("MaxPool" if kind == "MAX" else "AveragePool", [x.name], output, **window)
    return [layer.result((*x.dims[:2], *out))]


@converts("LRN")
def _lrn(layer: CaffeLayer, graph: CaffeGraph) -> list[Value]:
    p, x = layer.parameters("lrn_param"), _map(layer)
    if p.choice("norm_region", ("ACROSS_CHANNELS", "WITHIN_CHANNEL"), "ACROSS_CHANNELS") != "ACROSS_CHANNELS":
        layer.fail("only norm_region: ACROSS_CHANNELS is converted")
    size = p.integer("local_size", 5, minimum=1)
    if size % 2 == 0:
        layer.fail(f"local_size: {size} is even, which caffe refuses")
    values = {"alpha": p.number("alpha", 1.0), "beta": p.number("beta", 0.75), "bias": p.number("k", 1.0)}
    p.finish(_IGNORED)
    graph.node("LRN", [x.name], layer.outputs[0], size=size, **values)
    return [layer.result(x.dims)]


def _map(layer: CaffeLayer) -> Value:
    (x,) = layer.bottoms
    if len(x.dims) != 4:
        layer.fail(f"it needs a blob of 4 axes, {layer.bottom_names[0]!r} has the dims {x.dims}")
    return x


def _pair(layer: CaffeLayer, p: Message, name: str, default: int | None) -> Pair:
    """Height and width: ``kernel_size``, once or twice, or ``kernel_h`` and ``kernel_w``."""
    single = "kernel_size" if name == "kernel" else name
    values = p.integers(single)
    split = [p.integers(f"{name}_{letter}") for letter in "hw"]
    if any(split):
        values = [value for side in split for value in side]
        if p.has(single) or len(values) != 2:
            layer.fail(f"{single}, or {name}_h and {name}_w, once each, not both", line=p.line)
    if not values and default is not None:
        values = [default]
    if not 1 <= len(values) <= 2 or (name != "pad" and min(values) < 1):
        layer.fail(f"{single} is {values or 'missing'}", line=p.line)
    return values[0], values[-1]


def _scale_arrays(layer: CaffeLayer, shape: tuple[int, ...]) -> Sequence[FloatArray]:
    """Factors and summands of a Scale layer that is one operator with the BatchNorm before it."""
    p = layer.parameters("scale_param")
    biased = p.flag("bias_term", False)
    if (p.integer("axis", 1, minimum=-32, maximum=32), p.integer("num_axes", 1, minimum=-1, maximum=32)) != (1, 1):
        layer.fail("after a BatchNorm, only a scale for each channel is converted")
    p.finish(_IGNORED)
    return layer.arrays(shape, *([shape] if biased else []))


def _spread(array: FloatArray, axis: int, x: Value) -> FloatArray:
    """An array in a shape that broadcasts from an axis of x on."""
    return array.reshape(*array.shape, *[1] * (len(x.dims) - axis - array.ndim))


def _broadcast(layer: CaffeLayer, graph: CaffeGraph, factors: Value, axis: int, rank: int) -> str:
    """Reshape a blob so that it broadcasts along an axis and those after it."""
    after = rank - axis - len(factors.dims)
    if after <= 0:
        return factors.name
    dims = graph.constant(f"{layer.name}.dims", np.array([*factors.dims, *[1] * after], np.int64))
    return graph.node("Reshape", [factors.name, dims], graph.unique(f"{layer.name}.factors"))
