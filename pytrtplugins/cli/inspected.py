"""Facts about a model or an engine, for ``pytrt inspect`` and ``pytrt build``."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..engines.base.engine import Engine
from ..errors import PytrtpluginsError
from ..model.decompose import infer_shapes
from ..model.fit import node_type
from ..model.opaque import hide_opaque, opaque_nodes, shown_node
from ..model.proto import has_shape, node_name, type_text
from ..model.skeleton import Signatures, nodes_beyond_onnx, unknown_nodes
from ..plugin.onnx_node import is_plugin_node, node_attributes
from ..utils.optional import onnx
from ..validation.dataflow import given_inputs, walk
from .model_facts import DarknetFacts, EngineFacts, ModelFacts, NodeFacts, PluginFacts, TensorFacts
from .shared.results import Result

__all__ = ["all_node_facts", "engine_facts", "inspect_darknet", "model_facts", "node_facts"]


def model_facts(model: onnx.ModelProto, file: str) -> ModelFacts:
    """Inputs, outputs, operators and plugins of an ONNX model."""
    graph = model.graph
    unknown = _unknown_nodes(model)
    beyond = Counter(map(node_type, nodes_beyond_onnx(model))) - Counter(map(node_type, unknown))
    counts = Counter(_operator(node) for node in graph.node)
    return ModelFacts(
        file,
        graph.name,
        model.producer_name,
        {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        len(graph.node),
        sum(int(np.prod(tensor.dims)) for tensor in graph.initializer),
        model.ByteSize(),
        (
            *(_tensor("input", value) for value in given_inputs(graph)),
            *(_tensor("output", value) for value in graph.output),
        ),
        dict(counts.most_common()),
        tuple(PluginFacts(node.name, _operator(node), _fields(node)) for node in graph.node if is_plugin_node(node)),
        dict(beyond.most_common()),
        node_facts(model, unknown),
    )


def node_facts(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> tuple[NodeFacts, ...]:
    """Facts on given nodes of a model, which may be in its subgraphs, with their inputs and outputs."""
    typed = hide_opaque(model, misplaced=False)
    with contextlib.suppress(PytrtpluginsError):
        typed = infer_shapes(typed)
    twins = {id(node): twin for node, twin in zip(walk(model.graph.node), walk(typed.graph.node), strict=False)}
    signatures = Signatures(typed)
    return tuple(
        NodeFacts(node_name(node), _operator(node), signatures.of(twins.get(id(node), node))) for node in nodes
    )


def all_node_facts(model: onnx.ModelProto) -> tuple[NodeFacts, ...]:
    """Facts on all nodes of a model: name, operator, inputs and outputs."""
    typed = hide_opaque(model, misplaced=False)
    with contextlib.suppress(PytrtpluginsError):
        typed = infer_shapes(typed)
    signatures = Signatures(typed)
    return tuple(
        NodeFacts(node_name(node), node_type(shown_node(node)), signatures.of(node)) for node in typed.graph.node
    )


def engine_facts(engine: Engine, file: Path) -> EngineFacts:
    """Precision, inputs and outputs of an engine."""
    sides = (("input", engine.inputs), ("output", engine.outputs))
    return EngineFacts(
        str(file),
        engine.name,
        engine.precision,
        engine.arithmetic,
        engine.model_digest,
        tuple(
            TensorFacts(side, desc.name, str(desc.dtype), tuple(d if isinstance(d, int) else str(d) for d in desc.dims))
            for side, descs in sides
            for desc in descs
        ),
        dict(engine.choices),
    )


def inspect_darknet(cfg: Path, weights: Path | None) -> Result[DarknetFacts]:
    """The layers of a darknet network, and whether its weights fit."""
    from darknet2caffe.cli import print_network
    from darknet2caffe.inspect import rows, weights_line
    from darknet2caffe.network import read_network

    network = read_network(cfg, weights)
    outputs = tuple(layer.name for layer in network.outputs)
    facts = (network.name, network.dialect, network.dialect_reason, network.dims, outputs)
    return Result(DarknetFacts(*facts, tuple(rows(network)), weights_line(network)), lambda _: print_network(network))


# -- inside --------------------------------------------------------------------------------------------------------------


def _unknown_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes of a model that have no known class here."""
    hidden = hide_opaque(model, misplaced=False)
    opaque = opaque_nodes(hidden)
    pairs = zip(walk(model.graph.node), walk(hidden.graph.node), strict=True)
    inner = [node for function in model.functions for node in function.node]
    nodes = [node for node, twin in pairs if any(twin is unknown for unknown in opaque)]
    return nodes + [node for node in walk(inner) if any(node is unknown for unknown in unknown_nodes(model))]


def _operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}".lstrip(".")


def _tensor(side: str, value: onnx.ValueInfoProto) -> TensorFacts:
    dims = tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim)
    return TensorFacts(side, value.name, type_text(value), dims if has_shape({value.name: value}, value.name) else None)


def _fields(node: onnx.NodeProto) -> str:
    hidden = ("plugin_namespace", "plugin_version")
    values = {key: value for key, value in node_attributes(node).items() if key not in hidden}
    return ", ".join(f"{key}={_short_text(value)}" for key, value in values.items())


def _short_text(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"array{value.shape}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        shown = ", ".join(f"{item:.6g}" if isinstance(item, float) else str(item) for item in value[:10])
        return f"({shown}{', ...' if len(value) > 10 else ''})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
