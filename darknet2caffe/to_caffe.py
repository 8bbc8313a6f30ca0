"""Network → caffe's .prototxt and .caffemodel: one function per layer type, each adding the layers of one layer."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from pytrtplugins._files import write_atomic
from pytrtplugins._optional import require
from pytrtplugins.errors import UsageError

from .caffe_schema import messages, parameter_name
from .fold import BnEps, batch_norm_form, check_bn_eps
from .fold import fold as fold_batch_norm
from .layers import Avgpool, Convolutional, Layer, Maxpool, PluginLayer, Route, Shortcut, Softmax, Upsample
from .network import INPUT_NAME, Network
from .to_onnx import LEAKY_SLOPE, Activation, chosen_activation

__all__ = ["to_caffe"]


def to_caffe(
    network: Network,
    prefix: str | Path,
    *,
    fold: bool = True,
    activation: Activation = "as-is",
    bn_eps: BnEps = "darknet-cpu",
    input_size: tuple[int, int] | None = None,
    batch: int = 1,
) -> tuple[Path, Path]:
    """Convert a darknet network to caffe.

    Reorg, Region and Yolo become layers of those types with their own parameter messages, for a plugin factory to find.

    Args:
        network: The network, with weights.
        prefix: Path without suffix; ``.prototxt`` and ``.caffemodel`` are added to it.
        fold: Write batch normalization into the convolutions; otherwise as BatchNorm and Scale layers.
        activation: As for `to_onnx`.
        bn_eps: As for `to_onnx`.
        input_size: Width and height to use instead of the cfg's.
        batch: Images per run.

    Returns:
        The two files.

    Raises:
        UsageError: caffe cannot express a layer, or an argument is wrong, or the network has no weights.
    """
    check_bn_eps(bn_eps)
    chosen_activation("linear", activation)
    if not isinstance(batch, int) or batch < 1:
        raise UsageError(f"batch={batch!r}: caffe's batch is a number of at least 1")
    if input_size is not None:
        network = network.with_input_size(*input_size)
    writer = _Writer(network, fold, activation, bn_eps)
    net = writer.net(batch)
    binary, text = Path(f"{prefix}.caffemodel"), Path(f"{prefix}.prototxt")
    serialized = net.SerializeToString()
    for layer in net.layer:
        del layer.blobs[:]
    text_format = require("google.protobuf.text_format", extra="caffe", package="protobuf")
    write_atomic(binary, serialized)
    write_atomic(text, text_format.MessageToString(net).encode())
    return text, binary


class _Writer:
    """The caffe layers that are being written."""

    def __init__(self, network: Network, fold: bool, activation: str, bn_eps: str) -> None:
        self.network, self.fold, self.activation, self.bn_eps = network, fold, activation, bn_eps
        plugins = {type(layer.plugin) for layer in network.layers if isinstance(layer, PluginLayer)}
        self.messages = messages(tuple(sorted(plugins, key=lambda plugin: plugin.plugin_key())))
        self.result = self.messages["NetParameter"](name=network.name)

    def net(self, batch: int) -> Any:
        data = self.layer("Input", INPUT_NAME, [], INPUT_NAME)
        data.input_param.shape.add(dim=[batch, *self.network.dims])
        for layer in self.network.layers:
            if not layer.is_identity:
                write_layer(layer, self)
        for layer in self.network.outputs:
            if layer.is_identity:  # a Concat of one blob gives the output its name
                self.layer("Concat", layer.name, [self.network.tensor_name(layer.index)], layer.name)
        return self.result

    def layer(self, kind: str, name: str, bottoms: list[str], top: str) -> Any:
        return self.result.layer.add(type=kind, name=name, bottom=bottoms, top=[top])

    def blobs(self, target: Any, *arrays: Any) -> None:
        for array in arrays:
            blob = target.blobs.add(data=np.ascontiguousarray(array, "<f4").tobytes())
            blob.shape.dim.extend(array.shape)

    def bottoms(self, layer: Layer) -> list[str]:
        return [self.network.tensor_name(index) for index in layer.inputs]

    def activate(self, layer: Convolutional | Shortcut) -> None:
        """Add the activation, in place."""
        kind = chosen_activation(layer.activation, self.activation)
        if kind in ("relu", "leaky"):
            relu = self.layer("ReLU", f"{layer.name}.{kind}", [layer.name], layer.name)
            if kind == "leaky":
                relu.relu_param.negative_slope = LEAKY_SLOPE
        elif kind == "logistic":
            self.layer("Sigmoid", f"{layer.name}.{kind}", [layer.name], layer.name)


@functools.singledispatch
def write_layer(layer: Layer, writer: _Writer) -> None:
    """Add a layer; its result is the blob ``layer.name``."""
    _refuse(layer, writer, "there is no caffe layer for it")


@write_layer.register
def _(layer: Convolutional, writer: _Writer) -> None:
    parameters = writer.network.parameters(layer)
    normalize = layer.batch_normalize and not writer.fold
    target = writer.layer("Convolution", layer.name, writer.bottoms(layer), layer.name)
    convolution = target.convolution_param
    convolution.num_output, convolution.group, convolution.bias_term = layer.filters, layer.groups, not normalize
    convolution.pad.append(layer.padding)
    convolution.kernel_size.append(layer.size)
    convolution.stride.append(layer.stride)
    if normalize:
        writer.blobs(target, parameters["weights"])
        variance, epsilon = batch_norm_form(parameters, writer.bn_eps)
        norm = writer.layer("BatchNorm", f"{layer.name}.norm", [layer.name], layer.name)
        norm.batch_norm_param.use_global_stats, norm.batch_norm_param.eps = True, epsilon
        writer.blobs(norm, parameters["rolling_mean"], variance, np.ones(1, np.float32))
        scale = writer.layer("Scale", f"{layer.name}.scale", [layer.name], layer.name)
        scale.scale_param.bias_term = True
        writer.blobs(scale, parameters["scales"], parameters["biases"])
    else:
        writer.blobs(target, *fold_batch_norm(parameters, writer.bn_eps))
    writer.activate(layer)


@write_layer.register
def _(layer: Maxpool, writer: _Writer) -> None:
    pad = layer.pads[0]
    expected = tuple(_caffe_pooled(into, pad, layer.size, layer.stride) for into in layer.input_dims[0][1:])
    if expected != layer.dims[1:]:
        _refuse(
            layer,
            writer,
            f"caffe's pooling gives {expected[1]} x {expected[0]}, darknet's {layer.dims[2]} x {layer.dims[1]}"
            f" (size={layer.size} stride={layer.stride} padding={layer.padding}: darknet pads unevenly)",
        )
    pooling = writer.layer("Pooling", layer.name, writer.bottoms(layer), layer.name).pooling_param
    pooling.pool, pooling.kernel_size, pooling.stride, pooling.pad = 0, layer.size, layer.stride, pad


@write_layer.register
def _(layer: Avgpool, writer: _Writer) -> None:
    pooling = writer.layer("Pooling", layer.name, writer.bottoms(layer), layer.name).pooling_param
    pooling.pool, pooling.global_pooling = 1, True


@write_layer.register
def _(layer: Route, writer: _Writer) -> None:
    writer.layer("Concat", layer.name, writer.bottoms(layer), layer.name).concat_param.axis = 1


@write_layer.register
def _(layer: Shortcut, writer: _Writer) -> None:
    writer.layer("Eltwise", layer.name, writer.bottoms(layer), layer.name).eltwise_param.operation = 1
    writer.activate(layer)


@write_layer.register
def _(layer: Upsample, writer: _Writer) -> None:
    channels = layer.dims[0]  # repeating values is a deconvolution with ones, channel by channel
    target = writer.layer("Deconvolution", layer.name, writer.bottoms(layer), layer.name)
    convolution = target.convolution_param
    convolution.num_output, convolution.group, convolution.bias_term = channels, channels, False
    convolution.kernel_size.append(layer.stride)
    convolution.stride.append(layer.stride)
    writer.blobs(target, np.ones((channels, 1, layer.stride, layer.stride), np.float32))


@write_layer.register
def _(layer: Softmax, writer: _Writer) -> None:
    if layer.groups != 1 or layer.temperature != 1 or layer.dims[1:] != (1, 1):
        _refuse(layer, writer, "caffe's Softmax has no groups, no temperature, and runs over channels only")
    writer.layer("Softmax", layer.name, writer.bottoms(layer), layer.name).softmax_param.axis = 1


@write_layer.register
def _(layer: PluginLayer, writer: _Writer) -> None:
    plugin = layer.plugin
    target = writer.layer(plugin.plugin_key().name, layer.name, writer.bottoms(layer), layer.name)
    parameters = getattr(target, parameter_name(type(plugin)))
    for name, value in plugin.fields().items():
        if isinstance(value, tuple):
            getattr(parameters, name).extend(value)
        else:
            setattr(parameters, name, value)


def _caffe_pooled(into: int, pad: int, size: int, stride: int) -> int:
    """Caffe's output size, rounded up (src/caffe/layers/pooling_layer.cpp, Reshape)."""
    out = -(-(into + 2 * pad - size) // stride) + 1
    return out - 1 if pad and (out - 1) * stride >= into + pad else out


def _refuse(layer: Layer, writer: _Writer, reason: str) -> None:
    raise UsageError(
        f"layer {layer.index} ({layer.type}, line {layer.line} of {writer.network.cfg.path}) cannot be written for caffe:"
        f" {reason}.\nDo: use the ONNX file.",
        layer=layer.index,
    )
