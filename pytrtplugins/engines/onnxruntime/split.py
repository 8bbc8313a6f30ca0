"""Cut a graph at its plugin nodes: stretches of standard operators, with plugins between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._optional import require
from ...onnx_node import from_node, is_plugin_node
from ...plugin import Plugin

if TYPE_CHECKING:
    import onnx

__all__ = ["PluginStep", "Stretch", "split"]


@dataclass(frozen=True)
class Stretch:
    """Standard operators that run in one go.

    Attributes:
        model: They as a model of their own.
        inputs: Tensors that it reads.
        outputs: Tensors that it gives.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class PluginStep:
    """One plugin node.

    Attributes:
        plugin: The plugin.
        name: The node's name.
        inputs: Tensors that it reads.
        outputs: Tensors that it gives.
    """

    plugin: Plugin
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def split(model: onnx.ModelProto) -> list[Stretch | PluginStep]:
    """Cut a model, whose nodes are in topological order, into steps that run one after the other.

    A node goes into the earliest stretch that has what it reads, so that there are as few stretches as the plugins allow.
    """
    ready = {info.name: 0 for info in model.graph.input}
    stretches: dict[int, list[onnx.NodeProto]] = {}
    plugins: dict[int, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        stage = max((ready[name] for name in node.input if name in ready), default=0)
        (plugins if is_plugin_node(node) else stretches).setdefault(stage, []).append(node)
        ready.update(dict.fromkeys(node.output, stage + is_plugin_node(node)))
    steps: list[Stretch | PluginStep] = []
    for stage in range(max([*stretches, *plugins], default=-1) + 1):
        if stage in stretches:
            steps.append(_stretch(model, stretches[stage]))
        for node in plugins.get(stage, []):
            steps.append(PluginStep(from_node(node), node.name or node.op_type, tuple(node.input), tuple(node.output)))
    return steps


def _stretch(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> Stretch:
    onnx = require("onnx", extra="onnx")
    graph = model.graph
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    made = {name for node in nodes for name in node.output}
    inside = {id(node) for node in nodes}
    read = list(dict.fromkeys(name for node in nodes for name in node.input if name))
    read_outside = {name for node in graph.node if id(node) not in inside for name in node.input}
    wanted = read_outside | {info.name for info in graph.output}
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [name for name in read if name not in made and name not in constants]
    outputs = [name for name in (name for node in nodes for name in node.output) if name in wanted]
    piece = onnx.ModelProto(ir_version=model.ir_version)
    piece.opset_import.extend(model.opset_import)
    piece.graph.name = graph.name
    piece.graph.node.extend(nodes)
    piece.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in set(read))
    piece.graph.input.extend(infos[name] for name in inputs)
    piece.graph.output.extend(infos[name] for name in outputs)
    return Stretch(piece, tuple(inputs), tuple(outputs))
