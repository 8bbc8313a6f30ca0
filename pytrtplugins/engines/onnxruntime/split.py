"""Cut a graph at its plugin nodes: stretches of standard operators, with plugins between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ..._dataflow import reads, walk
from ..._optional import require
from ...errors import BuildError
from ...onnx_node import from_node, is_plugin_node
from ...plugin import Plugin

if TYPE_CHECKING:
    import onnx

__all__ = ["PluginStep", "Stretch", "constants_outside", "split"]


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

    Raises:
        BuildError: a plugin is inside a branch or the body of a loop.
    """
    _check_plugins(model)
    ready = {info.name: 0 for info in model.graph.input}
    stretches: dict[int, list[onnx.NodeProto]] = {}
    plugins: dict[int, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        stage = max((ready[name] for name in reads(node) if name in ready), default=0)
        (plugins if is_plugin_node(node) else stretches).setdefault(stage, []).append(node)
        ready.update(dict.fromkeys(node.output, stage + is_plugin_node(node)))
    steps: list[Stretch | PluginStep] = []
    for stage in range(max([*stretches, *plugins], default=-1) + 1):
        if stage in stretches:
            steps.append(_stretch(model, stretches[stage]))
        for node in plugins.get(stage, []):
            steps.append(PluginStep(from_node(node), node.name or node.op_type, tuple(node.input), tuple(node.output)))
    return steps


def constants_outside(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]]:
    """The initializers that no session holds: those that plugins read, and those that are outputs of the model."""
    numpy_helper = require("onnx.numpy_helper", extra="onnx")
    wanted = {name for node in model.graph.node if is_plugin_node(node) for name in node.input}
    wanted.update(info.name for info in model.graph.output)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name in wanted}


def _check_plugins(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        inner = next((item for item in walk([node]) if is_plugin_node(item) and item is not node), None)
        if inner is not None:
            raise BuildError(
                f"plugin node {inner.name or inner.op_type!r} is inside node {node.name or node.output[0]!r} ({node.op_type}); "
                "between onnxruntime's sessions plugins run in the main graph only.\n"
                'Do: give the plugin a decomposition, or build with engine="cpu"',
                engine="onnxruntime",
                node=inner.name,
            )


def _stretch(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> Stretch:
    onnx = require("onnx", extra="onnx")
    graph = model.graph
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    made = {name for node in nodes for name in node.output}
    inside = {id(node) for node in nodes}
    read = list(dict.fromkeys(name for node in nodes for name in sorted(reads(node))))
    read_outside = set[str]().union(*(reads(node) for node in graph.node if id(node) not in inside))
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
