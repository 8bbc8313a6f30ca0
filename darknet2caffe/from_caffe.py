"""Convert caffe's .prototxt and .caffemodel to ONNX: files of `to_caffe` become the model of `to_onnx`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytrtplugins.errors import PluginError, UsageError
from pytrtplugins.plugin.base import Plugin
from pytrtplugins.utils.optional import onnx

from . import _caffe_operators, _caffe_values  # noqa: F401  register the converters
from ._caffe_graph import CONVERTERS, CaffeGraph, CaffeLayer, Value
from ._caffe_names import fuse_scales, name_tensors, unread
from .caffemodel import read_caffemodel
from .plugin_factory import PluginFactory, RegistryFactory
from .prototxt import Message, read_prototxt
from .weights import FloatArray

__all__ = ["from_caffe"]

log = logging.getLogger(__name__)

_NET_IGNORED = frozenset(["force_backward", "debug_info", "state"])
_LAYER_IGNORED = frozenset(["param", "loss_weight", "propagate_down", "phase"])


def from_caffe(
    prototxt: str | Path,
    caffemodel: str | Path,
    *,
    plugin_factory: PluginFactory | None = None,
    outputs: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """Convert a caffe network to ONNX; layers that caffe does not have become plugins.

    Of a network that `to_caffe` wrote it makes what `to_onnx` makes: the same operators, names, attributes and weights,
    wherever caffe has one layer for darknet's; elsewhere the same numbers. Of other networks it takes what runs at
    inference: Input layers and ``input:`` with ``input_shape`` or ``input_dim``; Convolution, Deconvolution, InnerProduct,
    BatchNorm, Scale, PReLU, Pooling, LRN, ReLU, Sigmoid, TanH, ELU, BNLL, Power, Eltwise, Concat, Slice, Split, Silence,
    Reshape, Flatten, Softmax and Dropout. Layers that are for training only (``include { phase: TRAIN }``) are left out.

    Args:
        prototxt: The network.
        caffemodel: Its weights.
        plugin_factory: Asked first about each layer's type; then caffe's own types, then the registered plugins.
        outputs: Blobs to be outputs; None: those that no layer reads, as in caffe.

    Returns:
        A model with caffe's batch; plugins are nodes, as of ``to_onnx(custom_layers="nodes")``.

    Raises:
        ModelError: a file is damaged or contradicts the other, or a layer is not converted; the message has line and
            layer.
        UsageError: ``outputs`` names a blob that is not there.

    Example:
        >>> model = from_caffe("yolov2-voc.prototxt", "yolov2-voc.caffemodel")  # doctest: +SKIP
        >>> [node.op_type for node in model.graph.node if node.domain]          # doctest: +SKIP
        ['Reorg', 'Region']
    """
    net = read_prototxt(prototxt)
    inputs, layers = _read_net(net)
    weights = read_caffemodel(caffemodel)
    _give_blobs(layers, weights, caffemodel)
    return _Importer(net, inputs, layers, plugin_factory).model(outputs)


class _Importer:
    """Converts the layers in order, and tracks the tensor of each blob."""

    def __init__(
        self, net: Message, inputs: list[Value], layers: list[CaffeLayer], factory: PluginFactory | None
    ) -> None:
        self.net, self.inputs, self.factory, self.registry = net, inputs, factory, RegistryFactory()
        self.layers = fuse_scales(layers)
        self.known = {value.name: value for value in inputs}
        self.heads: list[tuple[str, Plugin]] = []
        names = {*self.known, *(top for layer in layers for top in layer.tops)}
        self.graph = CaffeGraph(net.text("name", "") or Path(net.path).stem or "network", names)

    def model(self, outputs: Sequence[str] | None) -> onnx.ModelProto:
        """Convert everything."""
        graph = self.graph.graph
        name_tensors(self.layers, set(self.known), set(outputs or ()), self.graph)
        for layer in self.layers:
            self._convert(layer)
        names = unread(self.layers, list(self.known)) if outputs is None else list(dict.fromkeys(outputs))
        missing = [name for name in names if name not in self.known]
        if missing or not names:
            raise UsageError(
                f"{self.net.path}: outputs={list(names)!r}: expected names of blobs; there are {', '.join(self.known)}"
            )
        graph.input.extend(self._info(value) for value in self.inputs)
        for name in names:
            graph.output.append(self._info(self._output(name)))
        inner = {name for node in graph.node for name in node.output} - {value.name for value in graph.output}
        graph.value_info.extend(self._info(value) for value in self.known.values() if value.name in inner)
        return self.graph.complete(self._facts(names))

    def _info(self, value: Value) -> onnx.ValueInfoProto:
        return self.graph.info(value.name, value.dims)

    def _output(self, name: str) -> Value:
        """The tensor of a blob that is an output; a copy of that name where the blob is another tensor."""
        value, inputs = self.known[name], {value.name for value in self.inputs}
        if value.name == name not in inputs or (name in inputs and value.name not in inputs):
            return value
        output = self.graph.unique(f"{name}.output") if name in inputs else name
        return Value(self.graph.node("Identity", [value.name], output), value.dims)

    def _convert(self, layer: CaffeLayer) -> None:
        for name in layer.bottom_names:
            if name not in self.known:
                layer.fail(f"it reads the blob {name!r}, which no layer before it writes")
            layer.bottoms.append(self.known[name])
        for name in layer.tops:
            if name in self.known and name not in layer.bottom_names:
                layer.fail(f"it writes the blob {name!r}, which a layer before it has written")
        if len(set(layer.tops)) < len(layer.tops):
            layer.fail("it writes a blob twice")
        values = self._values(layer)
        layer.message.finish(_LAYER_IGNORED)
        self.known.update(zip(layer.tops, values, strict=True))

    def _values(self, layer: CaffeLayer) -> list[Value]:
        if self.factory is not None and self.factory.is_plugin(layer.type):
            return self._plugin(layer, self.factory)
        converter = CONVERTERS.get(layer.type)
        if converter is not None:
            for what, expected, names in (
                ("reads", converter.bottoms, layer.bottom_names),
                ("writes", converter.tops, layer.tops),
            ):
                if not names if expected is None else len(names) != expected:
                    layer.fail(
                        f"it {what} {len(names)} blobs, expected {'one or more' if expected is None else expected}"
                    )
            values = converter.convert(layer, self.graph)
            if layer.blobs and not layer.weighted:
                layer.fail("the .caffemodel has weights for it, which layers of this type do not have")
            return values
        if self.registry.is_plugin(layer.type):
            return self._plugin(layer, self.registry)
        layer.fail(
            f"neither caffe nor a registered plugin has this type (converted: {', '.join(sorted(CONVERTERS))})",
            f'register a plugin of that name, @plugin(namespace="yours") class {layer.type}(Plugin), before the network is'
            " read, or give from_caffe a plugin_factory that knows the type; of a network for training, read deploy.prototxt",
        )

    def _plugin(self, layer: CaffeLayer, factory: PluginFactory) -> list[Value]:
        parameters: dict[str, Any] = {}
        for field in layer.message.fields:
            if field.name.endswith("_param") and isinstance(field.value, Message):
                parameters |= layer.parameters(field.name).mapping()
        if layer.blobs:
            parameters["blobs"] = tuple(layer.blobs)
        try:
            plugin = factory.create_plugin(layer.type, parameters)
            if not isinstance(plugin, Plugin):
                layer.fail(f"the plugin factory made {plugin!r}, which is not a plugin")
            dims = plugin.all_output_dims([bottom.dims for bottom in layer.bottoms])
            node = plugin.as_node([bottom.name for bottom in layer.bottoms], layer.outputs, "".join(layer.outputs[:1]))
        except PluginError as error:
            layer.fail(str(error).rstrip("."))
        if len(dims) != len(layer.tops):
            layer.fail(f"it writes {len(layer.tops)} blobs, the plugin {plugin!r} {len(dims)}")
        self.graph.graph.node.append(node)
        self.heads += [(top, plugin) for top in layer.tops]
        return [layer.result([int(dim) for dim in shape], number) for number, shape in enumerate(dims)]

    def _facts(self, outputs: Sequence[str]) -> dict[str, Any] | None:
        """Metadata for detectors, as `to_onnx` writes it."""
        heads = [
            {"output": self.known[name].name, "type": plugin.plugin_key().name.lower(), **plugin.fields()}
            for name, plugin in self.heads
            if name in outputs and plugin.plugin_key().namespace == "darknet"
        ]
        if not heads or len(self.inputs) != 1 or len(self.inputs[0].dims) != 4:
            return None
        _, c, h, w = self.inputs[0].dims
        return {"width": w, "height": h, "channels": c, "heads": heads}


def _read_net(net: Message) -> tuple[list[Value], list[CaffeLayer]]:
    """Inputs, and the layers that run at inference."""
    if net.has("layers"):
        line = next(field.line for field in net.fields if field.name == "layers")
        net.fail(
            "its layers are of caffe's old form (layers { type: CONVOLUTION })",
            line=line,
            action="upgrade_net_proto_text OLD.prototxt NEW.prototxt, which comes with caffe",
        )
    inputs = _read_inputs(net)
    layers = []
    for message in net.messages("layer"):
        name, layer_type = message.text("name", ""), message.text("type", "")
        layer = CaffeLayer(name, layer_type, message, message.texts("bottom"), message.texts("top"))
        if not _runs(message):
            continue
        if layer_type == "Input":
            inputs += _read_input_layer(layer)
        else:
            layers.append(layer)
    net.text("name", "")
    net.finish(_NET_IGNORED)
    names = [value.name for value in inputs]
    if len(set(names)) < len(names) or not names:
        net.fail(f"its inputs are {names}; a network has some, each of another name")
    if not layers:
        net.fail("it has no layers")
    return inputs, layers


def _read_inputs(net: Message) -> list[Value]:
    """``input:`` with ``input_shape`` for each, or four ``input_dim``."""
    names, shapes = net.texts("input"), [shape.integers("dim", minimum=1) for shape in net.messages("input_shape")]
    dims = net.integers("input_dim", minimum=1)
    if dims and not shapes:
        shapes = [dims[start : start + 4] for start in range(0, len(dims), 4)]
        dims = []
    if dims or len(names) != len(shapes):
        net.fail(f"{len(names)} input of {len(shapes)} input_shape and {len(dims)} input_dim")
    return [
        _input(CaffeLayer(name, "Input", net, [], [name]), 0, shape) for name, shape in zip(names, shapes, strict=True)
    ]


def _read_input_layer(layer: CaffeLayer) -> list[Value]:
    p = layer.parameters("input_param")
    shapes = [shape.integers("dim", minimum=1) for shape in p.messages("shape")]
    p.finish()
    layer.message.finish(_LAYER_IGNORED)
    shapes = shapes * len(layer.tops) if len(shapes) == 1 else shapes
    if layer.bottom_names or len(shapes) != len(layer.tops):
        layer.fail(f"{len(layer.tops)} tops of {len(shapes)} shapes")
    return [_input(layer, number, shape) for number, shape in enumerate(shapes)]


def _input(layer: CaffeLayer, top: int, shape: list[int]) -> Value:
    layer.outputs = list(layer.tops)
    if not 1 <= len(shape) <= 32:
        layer.fail(f"an input of {len(shape)} axes")
    return layer.result(shape, top)


def _runs(layer: Message) -> bool:
    """Whether the layer is part of inference; of the rules only ``phase`` is supported."""
    include, exclude = layer.messages("include"), layer.messages("exclude")
    for rule in (*include, *exclude):
        rule.choice("phase", ("TRAIN", "TEST"), "TEST")
        rule.finish()
    phases = [[rule.choice("phase", ("TRAIN", "TEST"), "TEST") for rule in rules] for rules in (include, exclude)]
    return (not include or "TEST" in phases[0]) and "TEST" not in phases[1]


def _give_blobs(layers: list[CaffeLayer], weights: Mapping[str, Sequence[FloatArray]], path: str | Path) -> None:
    """Each layer its weights, by name."""
    for layer in layers:
        layer.blobs = weights.get(layer.name, ())
    unused = sorted(weights.keys() - {layer.name for layer in layers})
    if unused:
        log.warning("%s: weights of layers that the network has not: %s", path, ", ".join(unused[:10]))
