"""A prepared model → the form that TensorRT's ONNX parser takes, in two steps: `written_out`, then `parser_form`."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...model.decompose import add_shapes
from ...model.proto import copy_of
from ...plugin.base import Plugin
from ...plugin.onnx_node import from_node, is_plugin_node
from ...plugin.policy import NO_REQUESTS, RUNNING, chosen_form, has_enqueue
from ...plugin.registry import PluginKey
from ...tensor import DType, TensorDesc
from ...utils.optional import require
from ..base.plugins import write_decompositions
from .plugin_fields import EXTRAS, needs_bytes

if TYPE_CHECKING:
    import onnx

__all__ = ["parser_form", "plugin_keys", "written_out"]

_SERIALIZED, _OUTPUTS, _SCALES, _FORM = EXTRAS


def parser_form(model: onnx.ModelProto, requested: Mapping[str, str] = NO_REQUESTS) -> onnx.ModelProto:
    """Write a model so that the parser finds every plugin with everything that belongs to it.

    Plugin nodes carry how many outputs they have, and as bytes what attributes cannot carry. A plugin between Q/DQ that
    takes int8 gets int8 and gives int8, with the scales as attributes: TensorRT does not fuse Q/DQ into plugins.

    Args:
        model: What `written_out` gave; it is not changed.
        requested: Plugin → the form that the user asks for.
    """
    written = copy_of(model)
    del written.functions[:]  # those of plugins; the parser might prefer them
    scales = _plugins_on_int8(written)
    for node in written.graph.node:
        if is_plugin_node(node):
            _complete(node, from_node(node), scales.get(node.output[0], []), requested)
    return written


def plugin_keys(model: onnx.ModelProto) -> tuple[PluginKey, ...]:
    """Keys of the plugins of a model, sorted."""
    return tuple(sorted({from_node(node).plugin_key() for node in model.graph.node if is_plugin_node(node)}))


def written_out(model: onnx.ModelProto, requested: Mapping[str, str] = NO_REQUESTS) -> onnx.ModelProto:
    """Write out the plugins that TensorRT computes with its own layers, as `pytrtplugins.plugin.policy` says, and name the others.

    Args:
        model: A prepared model; it is not changed.
        requested: Plugin → the form that the user asks for.
    """
    written = copy_of(model)
    for index, node in enumerate(node for node in written.graph.node if is_plugin_node(node)):
        node.name = node.name or f"plugin{index}_{node.output[0]}"
    return add_shapes(write_decompositions(written, "tensorrt", requested))


def _complete(node: onnx.NodeProto, plugin: Plugin, scales: list[float], requested: Mapping[str, str]) -> None:
    helper = require("onnx.helper", extra="onnx")
    if needs_bytes(plugin):
        own = {spec.name for spec in plugin.field_specs()}
        kept = [attribute for attribute in node.attribute if attribute.name not in own]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.append(helper.make_attribute(_SERIALIZED, base64.b64encode(plugin.serialize()).decode()))
    node.attribute.append(helper.make_attribute(_OUTPUTS, len(node.output)))
    if scales:
        node.attribute.append(helper.make_attribute(_SCALES, scales))
    form = chosen_form(type(plugin), "tensorrt", requested, RUNNING)
    if form == "compute" and has_enqueue(type(plugin)):
        node.attribute.append(helper.make_attribute(_FORM, form))


def _plugins_on_int8(model: onnx.ModelProto) -> dict[str, list[float]]:
    """DQ → plugin → Q becomes plugin, for plugins that take int8; the scales by the node's first output."""
    graph = model.graph
    producers = {name: node for node in graph.node for name in node.output}
    outputs = {info.name for info in graph.output}
    found_scales: dict[str, list[float]] = {}
    for node in list(graph.node):
        if not is_plugin_node(node):
            continue
        plugin = from_node(node)
        readers = [[reader for reader in graph.node if name in reader.input] for name in node.output]
        before = [producers.get(name) for name in node.input]
        fits = (
            plugin.int8 != "float"
            and all(dq is not None and dq.op_type == "DequantizeLinear" for dq in before)
            and all(len(found) == 1 and found[0].op_type == "QuantizeLinear" for found in readers)
            and not outputs & set(node.output)
        )
        after = [found[0] for found in readers] if fits else []
        if not fits or not _takes_int8(plugin, len(before), len(after)):
            continue
        scales = [_scalar(graph, pair.input[1]) for pair in (*before, *after) if pair is not None]
        if any(scale is None for scale in scales):
            continue
        for index, dq in enumerate(before):
            node.input[index] = dq.input[0] if dq is not None else node.input[index]
        for index, q in enumerate(after):
            node.output[index] = q.output[0]
            graph.node.remove(q)
        found_scales[node.output[0]] = [scale for scale in scales if scale is not None]
    if found_scales:
        _drop_unused(graph, outputs)
    return found_scales


def _takes_int8(plugin: Plugin, num_inputs: int, num_outputs: int) -> bool:
    descs = [TensorDesc(f"tensor{index}", (1,) * 4, DType.INT8) for index in range(num_inputs + num_outputs)]
    return all(plugin.supports_format(position, descs) for position in range(len(descs)))


def _scalar(graph: onnx.GraphProto, name: str) -> float | None:
    """A constant's only value."""
    numpy_helper = require("onnx.numpy_helper", extra="onnx")
    for tensor in graph.initializer:
        if tensor.name == name:
            array = numpy_helper.to_array(tensor)
            return float(array.reshape(-1)[0]) if array.size == 1 else None
    return None


def _drop_unused(graph: onnx.GraphProto, outputs: Iterable[str]) -> None:
    """Take out dequantizations that nobody reads any more, and the descriptions of tensors that are gone."""
    wanted = set(outputs)
    read = {name for node in graph.node for name in node.input} | wanted
    for node in [node for node in graph.node if node.op_type == "DequantizeLinear" and node.output[0] not in read]:
        graph.node.remove(node)
    _keep(graph.initializer, {name for node in graph.node for name in node.input} | wanted)
    made = {name for node in graph.node for name in node.output}
    _keep(graph.value_info, made)


def _keep(items: Any, names: set[str]) -> None:
    kept: Sequence[Any] = [item for item in items if item.name in names]
    del items[:]
    items.extend(kept)
