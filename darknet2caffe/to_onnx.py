"""Network → ONNX: one function per layer type, each writing the nodes of one layer."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pytrtplugins._optional import require
from pytrtplugins.errors import UsageError

from .fold import BnEps, batch_norm_form, check_bn_eps, fold
from .layers import (
    Avgpool,
    Convolutional,
    Layer,
    Maxpool,
    PluginLayer,
    Route,
    Shape,
    Shortcut,
    Softmax,
    Upsample,
)
from .network import INPUT_NAME, Network

if TYPE_CHECKING:
    import onnx

__all__ = ["Activation", "BatchSize", "CustomLayers", "to_onnx"]

OPSET, IR_VERSION = 18, 10
LEAKY_SLOPE = 0.1  # src/activations.h, leaky_activate

Activation = Literal["as-is", "relu", "leaky"]
BatchSize = int | Literal["dynamic"]
CustomLayers = Literal["nodes", "functions", "inline"]


def to_onnx(
    network: Network,
    *,
    fold: bool = True,
    activation: Activation = "as-is",
    bn_eps: BnEps = "darknet-cpu",
    input_size: tuple[int, int] | None = None,
    batch: BatchSize = 1,
    custom_layers: CustomLayers = "nodes",
) -> onnx.ModelProto:
    """Convert a darknet network to ONNX.

    Args:
        network: The network, with weights.
        fold: Write batch normalization into the convolutions; otherwise as BatchNormalization nodes.
        activation: ``"relu"`` turns every leaky ReLU into a ReLU, ``"leaky"`` the other way; both change the results.
        bn_eps: Which of darknet's two batch normalizations to follow: its CPU code's or its CUDA code's.
        input_size: Width and height to use instead of the cfg's.
        batch: Images per run, or ``"dynamic"``.
        custom_layers: ``"nodes"`` leaves Reorg, Region and Yolo as plugin nodes; ``"functions"`` adds their
            definition as ONNX functions; ``"inline"`` writes standard operators instead.

    Returns:
        A model with the input ``data`` (N, C, H, W): float32, RGB, 0..1. Its outputs are the heads in layer order, or
        the last layer; values and layout are darknet's ``layer.output``. ``metadata_props["darknet.net"]`` holds the
        input size and the heads' fields as JSON.

    Raises:
        UsageError: the network has no weights, or an argument is none of the values above.
        CfgError: a layer does not accept ``input_size``.
    """
    chosen_activation("linear", activation)
    _check_choice("custom_layers", custom_layers, ("nodes", "functions", "inline"))
    check_bn_eps(bn_eps)
    if not (batch == "dynamic" or (isinstance(batch, int) and batch >= 1)):
        raise UsageError(f"batch={batch!r}: expected a number of at least 1, or 'dynamic'")
    if input_size is not None:
        network = network.with_input_size(*input_size)
    writer = _Writer(network, "N" if batch == "dynamic" else batch, fold, activation, bn_eps)
    model = writer.model()
    if custom_layers == "nodes":
        return model
    from pytrtplugins import decompose

    rewrite = decompose.add_functions if custom_layers == "functions" else decompose.inline_plugins
    rewritten: onnx.ModelProto = rewrite(model)
    return rewritten


class _Writer:
    """Nodes and constants of the graph that is being written."""

    def __init__(self, network: Network, batch: int | str, fold: bool, activation: str, bn_eps: str) -> None:
        self.onnx = require("onnx", extra="onnx", feature="writing ONNX")
        self.network, self.batch = network, batch
        self.fold, self.activation, self.bn_eps = fold, activation, bn_eps
        self.result = self.onnx.ModelProto(ir_version=IR_VERSION, producer_name="darknet2caffe")
        self.graph = self.result.graph  # written in place: helper.make_model would copy the weights twice more

    def model(self) -> onnx.ModelProto:
        helper, network, graph = self.onnx.helper, self.network, self.graph
        graph.name = network.name
        graph.input.append(self.value(INPUT_NAME, network.dims))
        for layer in network.layers:
            if not layer.is_identity:
                write_layer(layer, self)
                if layer not in network.outputs:
                    graph.value_info.append(self.value(layer.name, layer.dims))
        for layer in network.outputs:
            if layer.is_identity:
                self.node("Identity", [network.tensor_name(layer.index)], layer.name)
            graph.output.append(self.value(layer.name, layer.dims))
        domains = sorted({node.domain for node in graph.node} - {""})
        versions = {"": OPSET} | dict.fromkeys(domains, 1)
        self.result.opset_import.extend(helper.make_opsetid(*version) for version in versions.items())
        helper.set_model_props(self.result, {"darknet.net": json.dumps(_metadata(network))})
        result: onnx.ModelProto = self.result
        return result

    def value(self, name: str, dims: Shape) -> onnx.ValueInfoProto:
        helper, element_type = self.onnx.helper, self.onnx.TensorProto.FLOAT
        info: onnx.ValueInfoProto = helper.make_tensor_value_info(name, element_type, [self.batch, *dims])
        return info

    def constant(self, name: str, array: Any) -> str:
        data = np.ascontiguousarray(array)
        data_type = self.onnx.helper.np_dtype_to_tensor_dtype(data.dtype)
        self.graph.initializer.add(name=name, dims=data.shape, data_type=data_type, raw_data=data.tobytes())
        return name

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.graph.node.append(self.onnx.helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def inputs(self, layer: Layer) -> list[str]:
        return [self.network.tensor_name(index) for index in layer.inputs]

    def activate(self, kind: str, value: str, output: str) -> None:
        """Write the activation; ``value`` must not be ``output`` unless it is linear."""
        kind = chosen_activation(kind, self.activation)
        if kind == "leaky":
            self.node("LeakyRelu", [value], output, alpha=LEAKY_SLOPE)
        elif kind != "linear":
            self.node({"relu": "Relu", "logistic": "Sigmoid"}[kind], [value], output)


def chosen_activation(kind: str, wanted: str) -> str:
    """The activation to write for one of the cfg: ``wanted`` replaces leaky and relu, unless it is ``"as-is"``.

    Raises:
        UsageError: ``wanted`` is none of the choices.
    """
    _check_choice("activation", wanted, ("as-is", "relu", "leaky"))
    return wanted if wanted != "as-is" and kind in ("relu", "leaky") else kind


@functools.singledispatch
def write_layer(layer: Layer, writer: _Writer) -> None:
    """Write a layer's nodes; its output is the tensor ``layer.name``."""
    raise UsageError(f"layer {layer.index} ({layer.type}) cannot be written as ONNX")


@write_layer.register
def _(layer: Convolutional, writer: _Writer) -> None:
    parameters = writer.network.parameters(layer)
    normalize = layer.batch_normalize and not writer.fold
    linear = layer.activation == "linear"
    result = layer.name if linear else f"{layer.name}.linear"
    inputs = writer.inputs(layer)
    if normalize:
        inputs += [writer.constant(f"{layer.name}.weights", parameters["weights"])]
    else:
        weights, bias = fold(parameters, writer.bn_eps)
        inputs += [writer.constant(f"{layer.name}.weights", weights), writer.constant(f"{layer.name}.biases", bias)]
    convolved = writer.node(
        "Conv",
        inputs,
        f"{layer.name}.convolution" if normalize else result,
        kernel_shape=[layer.size] * 2,
        strides=[layer.stride] * 2,
        pads=[layer.padding] * 4,
        group=layer.groups,
    )
    if normalize:
        variance, epsilon = batch_norm_form(parameters, writer.bn_eps)
        values = (parameters["scales"], parameters["biases"], parameters["rolling_mean"], variance)
        names = ("scales", "biases", "rolling_mean", "rolling_variance")
        constants = [writer.constant(f"{layer.name}.{name}", value) for name, value in zip(names, values, strict=True)]
        writer.node("BatchNormalization", [convolved, *constants], result, epsilon=epsilon)
    writer.activate(layer.activation, result, layer.name)


@write_layer.register
def _(layer: Maxpool, writer: _Writer) -> None:
    size = [layer.size] * 2
    writer.node(
        "MaxPool",
        writer.inputs(layer),
        layer.name,
        kernel_shape=size,
        strides=[layer.stride] * 2,
        pads=list(layer.pads),
    )


@write_layer.register
def _(layer: Avgpool, writer: _Writer) -> None:
    writer.node("GlobalAveragePool", writer.inputs(layer), layer.name)


@write_layer.register
def _(layer: Route, writer: _Writer) -> None:
    writer.node("Concat", writer.inputs(layer), layer.name, axis=1)


@write_layer.register
def _(layer: Shortcut, writer: _Writer) -> None:
    result = layer.name if layer.activation == "linear" else f"{layer.name}.linear"
    writer.node("Add", writer.inputs(layer), result)
    writer.activate(layer.activation, result, layer.name)


@write_layer.register
def _(layer: Upsample, writer: _Writer) -> None:
    scales = writer.constant(f"{layer.name}.scales", np.array([1, 1, layer.stride, layer.stride], np.float32))
    writer.node(
        "Resize",
        [*writer.inputs(layer), "", scales],
        layer.name,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@write_layer.register
def _(layer: Softmax, writer: _Writer) -> None:
    (value,) = writer.inputs(layer)
    if layer.temperature != 1:
        temperature = writer.constant(f"{layer.name}.temperature", np.array(layer.temperature, np.float32))
        value = writer.node("Div", [value, temperature], f"{layer.name}.tempered")
    if layer.groups == 1 and layer.dims[1:] == (1, 1):
        writer.node("Softmax", [value], layer.name, axis=1)
        return
    grouped = writer.constant(f"{layer.name}.grouped_dims", np.array([0, layer.groups, -1], np.int64))
    dims = writer.constant(f"{layer.name}.dims", np.array([0, *layer.dims], np.int64))
    value = writer.node("Reshape", [value, grouped], f"{layer.name}.grouped")
    value = writer.node("Softmax", [value], f"{layer.name}.softmax", axis=2)
    writer.node("Reshape", [value, dims], layer.name)


@write_layer.register
def _(layer: PluginLayer, writer: _Writer) -> None:
    writer.graph.node.append(layer.plugin.as_node(writer.inputs(layer), [layer.name], layer.name))


def _metadata(network: Network) -> dict[str, Any]:
    c, h, w = network.dims
    return {"width": w, "height": h, "channels": c, "heads": network.head_metadata()}


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name}={value!r}: expected one of {', '.join(choices)}")
