"""Cut a graph at its plugin nodes: stretches of standard operators, with plugins between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ...errors import BuildError
from ...model.proto import arrays_of, node_name
from ...plugin.base import Plugin
from ...plugin.onnx_node import from_node, is_plugin_node, scales_of
from ...utils.optional import onnx
from ...validation.dataflow import tensors_read, walk
from ..host.ort_session import Submodel, Submodels

__all__ = ["PluginStep", "constants_outside", "split"]


@dataclass(frozen=True)
class PluginStep:
    """One plugin node.

    Attributes:
        plugin: The plugin.
        name: The node's name.
        inputs: Tensors that it reads.
        outputs: Tensors that it gives.
        scales: As for `PluginRunner`.
    """

    plugin: Plugin
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scales: tuple[float, ...] = ()


def split(model: onnx.ModelProto) -> list[Submodel | PluginStep]:
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
        stage = max((ready[name] for name in tensors_read(node) if name in ready), default=0)
        (plugins if is_plugin_node(node) else stretches).setdefault(stage, []).append(node)
        ready.update(dict.fromkeys(node.output, stage + is_plugin_node(node)))
    submodels, steps = Submodels(model), list[Submodel | PluginStep]()
    for stage in range(max([*stretches, *plugins], default=-1) + 1):
        if stage in stretches:
            steps.append(submodels.extract(stretches[stage]))
        for node in plugins.get(stage, []):
            names = tuple(node.input), tuple(node.output)
            steps.append(PluginStep(from_node(node), node.name or node.op_type, *names, scales_of(node)))
    return steps


def constants_outside(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]]:
    """The initializers that no session holds: those that plugins read, and those that are outputs of the model."""
    wanted = {name for node in model.graph.node if is_plugin_node(node) for name in node.input}
    wanted.update(info.name for info in model.graph.output)
    return arrays_of(tensor for tensor in model.graph.initializer if tensor.name in wanted)


def _check_plugins(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        inner = next((item for item in walk([node]) if is_plugin_node(item) and item is not node), None)
        if inner is not None:
            raise BuildError(
                f"plugin node {inner.name or inner.op_type!r} is inside node {node_name(node)!r} ({node.op_type}); "
                "between onnxruntime's sessions plugins run in the main graph only.\n"
                'Do: give the plugin a decomposition, or build with engine="cpu"',
                engine="onnxruntime",
                node=inner.name,
            )
