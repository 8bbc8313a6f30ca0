"""Writers of darknet's layers as ONNX nodes, one function per layer type."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from pytrtplugins.errors import UsageError
from pytrtplugins.layers import decompose_siblings
from pytrtplugins.model.op_builder import OpBuilder, Value

from . import layers
from ._onnx_activations import activate
from ._onnx_writer import NEAREST, OnnxWriter
from .fold import batch_norm_form, folded_bias, folded_weights
from .layers import Layer, Shape
from .weights import Parameters

__all__ = ["write_layer"]

_STATISTICS = ("scales", "biases", "rolling_mean", "rolling_variance")


def write_layer(layer: Layer, writer: OnnxWriter) -> None:
    """Write a layer's nodes; its output is the tensor ``layer.name``."""
    kind = getattr(layer, "activation", "linear")
    if isinstance(layer, layers.Activation):
        (top,) = writer.inputs(layer)
    else:
        top = layer.name if kind == "linear" else f"{layer.name}.linear"
        _write(layer, writer, top)
    activate(writer, kind, top, layer.name)


@functools.singledispatch
def _write(layer: Layer, writer: OnnxWriter, top: str) -> None:
    """Write all of a layer but its activation; the result is the tensor ``top``."""
    raise UsageError(f"layer {layer.index} ({layer.type}) cannot be written as ONNX")


@_write.register
def _write_convolutional(layer: layers.Convolutional, writer: OnnxWriter, top: str) -> None:
    _write_convolution(layer, writer, top, "Conv", group=layer.groups)


@_write.register
def _write_deconvolutional(layer: layers.Deconvolutional, writer: OnnxWriter, top: str) -> None:
    _write_convolution(layer, writer, top, "ConvTranspose", axis=1)


def _write_convolution(
    layer: layers.Convolutional | layers.Deconvolutional,
    writer: OnnxWriter,
    top: str,
    operator: str,
    *,
    axis: int = 0,
    **attributes: Any,
) -> None:
    """Write Conv or ConvTranspose, and the batch normalization unless it is folded."""
    normalize = layer.batch_normalize and not writer.options.fold
    inputs = [*writer.inputs(layer), _weights(layer, writer, axis=axis)]
    if not normalize:
        inputs.append(writer.constant(f"{layer.name}.biases", folded_bias(_parameters(layer, writer), _eps(writer))))
    convolved = f"{layer.name}.convolution" if normalize else top
    output = writer.node(operator, inputs, convolved, **_window(layer), **attributes)
    if normalize:
        _normalize(layer, writer, output, top)


@_write.register
def _write_connected(layer: layers.Connected, writer: OnnxWriter, top: str) -> None:
    normalize, name = layer.batch_normalize and not writer.options.fold, layer.name
    flat = writer.node("Flatten", writer.inputs(layer), f"{name}.flat", axis=1)
    inputs = [flat, _weights(layer, writer)]
    if not normalize:
        inputs.append(writer.constant(f"{name}.biases", folded_bias(_parameters(layer, writer), _eps(writer))))
    product = writer.node("Gemm", inputs, f"{name}.product", transB=1)
    dims = writer.constant(f"{name}.dims", np.array([0, *layer.dims], np.int64))
    shaped = writer.node("Reshape", [product, dims], f"{name}.convolution" if normalize else top)
    if normalize:
        _normalize(layer, writer, shaped, top)


@_write.register
def _write_local(layer: layers.Local, writer: OnnxWriter, top: str) -> None:
    """Local layer: im2col by a convolution with ones, then one matrix product per pixel."""
    parameters, name = _parameters(layer, writer), layer.name
    (n, h, w), channels, values = layer.dims, layer.input_dims[0][0], layer.size**2
    ones = np.tile(np.eye(values, dtype=np.float32).reshape(values, 1, layer.size, layer.size), (channels, 1, 1, 1))
    op, (x,) = writer.builder(layer)
    columns = op.Conv(x, Value(writer.constant(f"{name}.windows", ones)), group=channels, **_window(layer))
    columns = op.Transpose(op.Reshape(columns, [0, channels * values, h * w]), perm=[2, 1, 0])
    output = op.MatMul(Value(_weights(layer, writer)), columns)
    output = op.Reshape(op.Transpose(output, perm=[2, 1, 0]), [0, n, h, w])
    output = op.Add(output, Value(writer.constant(f"{name}.biases", parameters["biases"][None])))
    writer.finish(op, output, top)


@_write.register
def _write_batchnorm(layer: layers.Batchnorm, writer: OnnxWriter, top: str) -> None:
    (value,) = writer.inputs(layer)
    _normalize(layer, writer, value, layer.name)


@_write.register
def _write_l2norm(layer: layers.L2norm, writer: OnnxWriter, top: str) -> None:
    op, (x,) = writer.builder(layer)
    writer.finish(op, op.Div(x, op.ReduceL2(x, [1], keepdims=1)), layer.name)


@_write.register
def _write_normalization(layer: layers.Normalization, writer: OnnxWriter, top: str) -> None:
    """The sums of squares are a convolution with darknet's window as its matrix."""
    op, (x,) = writer.builder(layer)
    matrix = np.array(layer.window(), np.float32)[:, :, None, None] * np.float32(layer.alpha)
    kappa = np.full(layer.dims[0], layer.kappa, np.float32)
    names = writer.constant(f"{layer.name}.window", matrix), writer.constant(f"{layer.name}.kappa", kappa)
    sums = op.Conv(op.Mul(x, x), *map(Value, names), kernel_shape=[1, 1])
    writer.finish(op, op.Mul(x, op.Pow(sums, -layer.beta)), layer.name)


@_write.register
def _write_maxpool(layer: layers.Maxpool, writer: OnnxWriter, top: str) -> None:
    size, strides = [layer.size] * 2, [layer.stride] * 2
    writer.node("MaxPool", writer.inputs(layer), layer.name, kernel_shape=size, strides=strides, pads=list(layer.pads))


@_write.register
def _write_avgpool(layer: layers.Avgpool, writer: OnnxWriter, top: str) -> None:
    writer.node("GlobalAveragePool", writer.inputs(layer), layer.name)


@_write.register
def _write_upsample(layer: layers.Upsample, writer: OnnxWriter, top: str) -> None:
    stride, factor = layer.stride, layer.scale * (layer.stride**2 if layer.reverse else 1)
    result = layer.name if factor == 1 else f"{layer.name}.unscaled"
    if layer.reverse:
        writer.node("AveragePool", writer.inputs(layer), result, kernel_shape=[stride] * 2, strides=[stride] * 2)
    else:
        scales = writer.constant(f"{layer.name}.scales", np.array([1, 1, stride, stride], np.float32))
        writer.node("Resize", [writer.inputs(layer)[0], "", scales], result, **NEAREST)
    if factor != 1:
        scale = writer.constant(f"{layer.name}.scale", np.array(factor, np.float32))
        writer.node("Mul", [result, scale], layer.name)


@_write.register
def _write_crop(layer: layers.Crop, writer: OnnxWriter, top: str) -> None:
    op, (x,) = writer.builder(layer)
    _, h, w = layer.dims
    output = op.Slice(x, [layer.top, layer.left], [layer.top + h, layer.left + w], [2, 3])
    if not layer.noadjust:
        output = op.Sub(op.Mul(output, 2.0), 1.0)
    writer.finish(op, output, layer.name)


@_write.register
def _write_flatten(layer: layers.Flatten, writer: OnnxWriter, top: str) -> None:
    c, h, w = layer.input_dims[0]
    op, (x,) = writer.builder(layer)
    rows = op.Reshape(x, [0, h * w, c] if layer.reverse else [0, c, h * w])
    writer.finish(op, op.Reshape(op.Transpose(rows, perm=[0, 2, 1]), [0, *layer.dims]), layer.name)


@_write.register
def _write_extra(layer: layers.Extra, writer: OnnxWriter, top: str) -> None:
    op, (x,) = writer.builder(layer)
    output = op.Pad(op.Flatten(x, axis=1), [0, 0, 0, layer.extra])
    writer.finish(op, op.Reshape(output, [0, *layer.dims]), layer.name)


@_write.register
def _write_reorg3d(layer: layers.Reorg3d, writer: OnnxWriter, top: str) -> None:
    (c, h, w), s = layer.input_dims[0], layer.stride
    op, (x,) = writer.builder(layer)
    blocks = op.Transpose(op.Reshape(x, [0, c, h // s, s, w // s, s]), perm=[0, 3, 5, 1, 2, 4])
    writer.finish(op, op.Reshape(blocks, [0, *layer.dims]), layer.name)


@_write.register
def _write_route(layer: layers.Route, writer: OnnxWriter, top: str) -> None:
    if layer.groups == 1 and not layer.is_flat:
        writer.node("Concat", writer.inputs(layer), layer.name, axis=1)
        return
    op, parts = writer.builder(layer)
    if layer.is_flat:
        parts = [op.Reshape(x, [0, -1, 1, 1]) for x in parts]
    else:
        sizes = [channels // layer.groups for channels, _, _ in layer.input_dims]
        begins = [layer.group_id * size for size in sizes]
        parts = [op.Slice(x, [k], [k + n], [1]) for x, k, n in zip(parts, begins, sizes, strict=True)]
    writer.finish(op, op.Concat(*parts, axis=1) if len(parts) > 1 else parts[0], layer.name)


@_write.register
def _write_shortcut(layer: layers.Shortcut, writer: OnnxWriter, top: str) -> None:
    plain = all(dims == layer.dims for dims in layer.input_dims) and layer.alpha == layer.beta == 1
    if plain and len(layer.inputs) == 2:
        writer.node("Add", writer.inputs(layer), top)
        return
    op, (x, *others) = writer.builder(layer)
    output = x
    if layer.alpha != 1:
        output = op.Mul(output, _alpha(op, layer, writer))
    for number, (other, dims) in enumerate(zip(others, layer.input_dims[1:], strict=True)):
        added = _resample_to_output(op, layer, writer, other, dims, f"{layer.name}.mask{number}")
        output = op.Add(output, op.Mul(added, layer.beta) if layer.beta != 1 else added)
    writer.finish(op, output, top)


@_write.register(layers.ScaleChannels)
@_write.register(layers.Sam)
def _write_scale_channels(layer: layers.ScaleChannels | layers.Sam, writer: OnnxWriter, top: str) -> None:
    writer.node("Mul", writer.inputs(layer), top)


@_write.register
def _write_softmax(layer: layers.Softmax, writer: OnnxWriter, top: str) -> None:
    (value,) = writer.inputs(layer)
    if layer.temperature != 1:
        temperature = writer.constant(f"{layer.name}.temperature", np.array(layer.temperature, np.float32))
        value = writer.node("Div", [value, temperature], f"{layer.name}.tempered")
    if layer.tree:
        op = OpBuilder(layer.name, layer.name)
        flat = op.Reshape(Value(value), [0, -1, 1, 1])
        writer.finish(op, op.Reshape(decompose_siblings(op, flat, layer.tree), [0, *layer.dims]), layer.name)
        return
    if layer.groups == 1 and layer.dims[1:] == (1, 1):
        writer.node("Softmax", [value], layer.name, axis=1)
        return
    grouped = writer.constant(f"{layer.name}.grouped_dims", np.array([0, layer.groups, -1], np.int64))
    dims = writer.constant(f"{layer.name}.dims", np.array([0, *layer.dims], np.int64))
    value = writer.node("Reshape", [value, grouped], f"{layer.name}.grouped")
    value = writer.node("Softmax", [value], f"{layer.name}.softmax", axis=2)
    writer.node("Reshape", [value, dims], layer.name)


@_write.register
def _write_detection(layer: layers.Detection, writer: OnnxWriter, top: str) -> None:
    op, (x,) = writer.builder(layer)
    cells, total = layer.side**2, math.prod(layer.dims)
    flat = op.Reshape(x, [0, -1])
    parts = op.Split(flat, [cells * layer.classes, total - cells * layer.classes], axis=1, outputs=2)
    classes = op.Softmax(op.Reshape(parts[0], [0, cells, layer.classes]), axis=2)
    output = op.Concat(op.Reshape(classes, [0, -1]), parts[1], axis=1)
    writer.finish(op, op.Reshape(output, [0, *layer.dims]), layer.name)


@_write.register
def _write_plugin(layer: layers.PluginLayer, writer: OnnxWriter, top: str) -> None:
    writer.graph.node.append(layer.plugin.as_node(writer.inputs(layer), [layer.name], layer.name))


def _window(layer: layers.Convolutional | layers.Deconvolutional | layers.Local) -> dict[str, list[int]]:
    return {"kernel_shape": [layer.size] * 2, "strides": [layer.stride] * 2, "pads": [layer.padding] * 4}


def _parameters(layer: Layer, writer: OnnxWriter) -> Parameters:
    return writer.network.parameters(layer)


def _eps(writer: OnnxWriter) -> str:
    return writer.options.bn_eps


def _weights(layer: Layer, writer: OnnxWriter, *, axis: int = 0) -> str:
    """The layer's weights as a constant that is worked out when it is written."""
    parameters, bn_eps = _parameters(layer, writer), _eps(writer)
    shape = dict(layer.parameters)["weights"]
    if not writer.options.fold:
        return writer.constant(f"{layer.name}.weights", lambda: parameters["weights"], shape)
    return writer.constant(f"{layer.name}.weights", lambda: folded_weights(parameters, bn_eps, axis=axis), shape)


def _normalize(layer: Layer, writer: OnnxWriter, value: str, result: str) -> None:
    """Batch normalization as a node; ``[batchnorm]`` has no biases."""
    parameters = _parameters(layer, writer)
    variance, epsilon = batch_norm_form(parameters, _eps(writer))
    biases = parameters.get("biases", np.zeros_like(parameters["scales"]))
    values = (parameters["scales"], biases, parameters["rolling_mean"], variance)
    names = [writer.constant(f"{layer.name}.{name}", array) for name, array in zip(_STATISTICS, values, strict=True)]
    writer.node("BatchNormalization", [value, *names], result, epsilon=epsilon)


def _alpha(op: OpBuilder, layer: layers.Shortcut, writer: OnnxWriter) -> Value | float:
    """The factor of each value of the layer before: ``alpha`` where something is added, 1 elsewhere."""
    other = layer.input_dims[1]
    _, sample = layer.steps(other)
    if sample == 1 and all(mine <= added for mine, added in zip(layer.dims, other, strict=True)):
        return layer.alpha
    c, h, w = map(min, layer.dims, other)
    masks = _masks(
        layer,
        writer,
        f"{layer.name}.alpha",
        (layer.dims[0], 1, c),
        (layer.dims[1], sample, h),
        (layer.dims[2], sample, w),
    )
    touched = op.Mul(op.Mul(masks[0], masks[1]), masks[2])
    factor: Value = op.Add(
        op.Mul(touched, layer.alpha),
        op.Sub(Value(writer.constant(f"{layer.name}.one", np.ones(1, np.float32))), touched),
    )
    return factor


def _masks(layer: layers.Shortcut, writer: OnnxWriter, name: str, *axes: tuple[int, int, int]) -> list[Value]:
    """One mask per axis, the last ones of (N, C, H, W): 1 at the first ``count`` of every ``step``-th position, else 0."""
    masks = []
    for axis, (length, step, count) in enumerate(axes, 4 - len(axes)):
        mask = np.zeros([length if k == axis else 1 for k in range(4)], np.float32)
        mask.reshape(-1)[: count * step : step] = 1
        masks.append(Value(writer.constant(f"{name}.{'nchw'[axis]}", mask)))
    return masks


def _resample_to_output(
    op: OpBuilder, layer: layers.Shortcut, writer: OnnxWriter, x: Value, dims: Shape, mask: str
) -> Value:
    """A map in the output's shape: every stride-th value at every sample-th pixel, the rest 0."""
    if dims == layer.dims:
        return x
    stride, sample = layer.steps(dims)
    c, h, w = map(min, layer.dims, dims)
    ends = [c, (h - 1) * stride + 1, (w - 1) * stride + 1]
    output = op.Slice(x, [0, 0, 0], ends, [1, 2, 3], [1, stride, stride])
    if sample > 1:
        scales = np.array([1, 1, sample, sample], np.float32)
        output = op.Resize(output, None, scales, **NEAREST)
        rows, columns = _masks(layer, writer, mask, (h * sample, sample, h), (w * sample, sample, w))
        output = op.Mul(op.Mul(output, rows), columns)
    missing = [0, layer.dims[0] - c, layer.dims[1] - h * sample, layer.dims[2] - w * sample]
    if any(missing):
        output = op.Pad(output, [0, 0, 0, 0, *missing])
    fitted: Value = output
    return fitted
