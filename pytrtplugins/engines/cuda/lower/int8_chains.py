"""Chains of INT8 layers in a model with Q/DQ, and the model with some of them in float again."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....model.operator_traits import Trait, operators
from ....model.proto import copy_of, info_dims, node_name, tensors_of
from ....passes.quantize import FLOAT_LAYERS
from ....utils.repeated import keep_items, set_items
from ...base.arithmetic import float_reasons

if TYPE_CHECKING:
    import onnx

__all__ = ["Int8Chain", "int8_chains", "with_float_chains"]

_LAYERS, _COPYING = operators(Trait.WEIGHTED), operators(Trait.COPIES)
_ELEMENTWISE = operators(Trait.UNARY) | operators(Trait.BROADCASTS) | operators(Trait.ACTIVATION)
_Q, _DQ = "QuantizeLinear", "DequantizeLinear"


@dataclass(frozen=True)
class Int8Chain:
    """Nodes between tensors of floats that hand codes to one another.

    Attributes:
        nodes: Their first outputs, in the graph's order.
        layers: Names of the layers among them, which have weights.
        form: Operators and dims; chains with the same one take the same time.
    """

    nodes: tuple[str, ...]
    layers: tuple[str, ...]
    form: str


def int8_chains(model: onnx.ModelProto) -> tuple[Int8Chain, ...]:
    """The chains of a prepared model with Q/DQ, in the graph's order; chains without a layer are left out.

    Nodes that read the same codes are in one chain, and so are a node and those whose results it reads as codes, with elementwise
    operators between them at most, which become part of a convolution.
    """
    finder = _Finder(model)
    chains: dict[str, list[onnx.NodeProto]] = {}
    for key, node in finder.readers.items():
        chains.setdefault(finder.root(key), []).append(node)
    tensors = tensors_of(model.graph)

    def form(node: onnx.NodeProto) -> str:
        names = [name for name in (*node.input[:2], _first_output(node)) if name in tensors]
        return f"{node.op_type} {[str(info_dims(tensors[name])) for name in names]}"

    return tuple(
        Int8Chain(tuple(_first_output(node) for node in nodes), layers, "; ".join(map(form, nodes)))
        for nodes in chains.values()
        if (layers := tuple(node_name(node) for node in nodes if _is_layer(node)))
    )


def with_float_chains(
    quantized: onnx.ModelProto, model: onnx.ModelProto, chains: Iterable[Int8Chain], reason: str
) -> onnx.ModelProto:
    """A quantized model with some of its chains in float again.

    Args:
        quantized: The model with Q/DQ; it is not changed.
        model: The float model that it was made of, which has the weights.
        chains: Those that are to be in float, of `int8_chains`.
        reason: Why; it is noted for each layer in the model's metadata.
    """
    mixed, chains = copy_of(quantized), tuple(chains)
    graph, nodes = mixed.graph, {name for chain in chains for name in chain.nodes}
    pairs, originals = _pairs(quantized), {_first_output(node): node for node in model.graph.node}
    for node in graph.node:
        if _first_output(node) in nodes:
            plain = originals[_first_output(node)].input
            node.input[:] = [
                pairs.get(name, plain[place] if place == 1 and _is_layer(node) else name)
                for place, name in enumerate(node.input)
            ]
    _remove_unread(graph)
    known = {tensor.name for tensor in graph.initializer}
    read = {name for node in graph.node for name in node.input} - known
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    reasons = float_reasons(quantized) | dict.fromkeys((name for chain in chains for name in chain.layers), reason)
    keep_items(mixed.metadata_props, lambda entry: entry.key != FLOAT_LAYERS)
    mixed.metadata_props.add(key=FLOAT_LAYERS, value=json.dumps(reasons))
    return mixed


class _Finder:
    """Finds which nodes belong together.

    Attributes:
        readers: First output → node, of those that read codes, or what an operator that only copies values makes of codes.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._pairs, self._producers = _pairs(model), {name: node for node in model.graph.node for name in node.output}
        self._constants = {"", *(tensor.name for tensor in model.graph.initializer)}
        self.readers: dict[str, onnx.NodeProto] = {}
        rounded = set(self._pairs)
        for node in model.graph.node:
            if node.op_type not in (_Q, _DQ) and not rounded.isdisjoint(node.input):
                self.readers[_first_output(node)] = node
                if node.op_type in _COPYING and not node.domain:
                    rounded.update(filter(None, node.output))
        self._parents, self._places = (
            {key: key for key in self.readers},
            {key: place for place, key in enumerate(self.readers)},
        )
        first_readers: dict[str, str] = {}
        for key, node in self.readers.items():
            for name in node.input:
                origin = self._pairs.get(name, name)
                if name in rounded:
                    self._join(key, first_readers.setdefault(origin, key))
                for source in self._sources(origin):
                    self._join(key, source)

    def root(self, key: str) -> str:
        """The first node of a node's chain."""
        while self._parents[key] != key:
            key = self._parents[key]
        return key

    def _join(self, key: str, other: str) -> None:
        roots = self.root(key), self.root(other)
        earlier = min(roots, key=self._places.__getitem__)
        self._parents.update(dict.fromkeys(roots, earlier))

    def _sources(self, tensor: str) -> Collection[str]:
        """The nodes that read codes and give a tensor, behind elementwise operators; none if it comes from other nodes too."""
        sources, waiting, seen = set[str](), [tensor], set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or name in self._constants:
                continue
            node = self._producers.get(name)
            seen.add(name)
            if node is not None and _first_output(node) in self.readers:
                sources.add(_first_output(node))
            elif node is not None and node.op_type in _ELEMENTWISE and not node.domain:
                waiting += node.input
            elif node is None or node.op_type != "Constant":
                return ()
        return sources


def _pairs(model: onnx.ModelProto) -> dict[str, str]:
    """What each DequantizeLinear behind a QuantizeLinear gives → the tensor that was quantized."""
    codes = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == _Q}
    return {
        node.output[0]: codes[node.input[0]]
        for node in model.graph.node
        if node.op_type == _DQ and node.input[0] in codes
    }


def _first_output(node: onnx.NodeProto) -> str:
    """The first output that a node has: a recurrent layer may lack Y."""
    return next(filter(None, node.output), "")


def _is_layer(node: onnx.NodeProto) -> bool:
    return node.op_type in _LAYERS and not node.domain


def _remove_unread(graph: onnx.GraphProto) -> None:
    """Remove the Q and DQ whose results nobody reads, with the constants that they alone read."""
    read, dropped = {info.name for info in graph.output}, set[str]()
    kept = []
    for node in reversed(graph.node):
        if node.op_type in (_Q, _DQ) and read.isdisjoint(node.output):
            dropped.update(node.input)
        else:
            read.update(node.input)
            kept.append(node)
    set_items(graph.node, reversed(kept))
    values = {name for node in graph.node for name in node.output}
    keep_items(graph.value_info, lambda info: info.name in values)
    keep_items(graph.initializer, lambda tensor: tensor.name not in dropped - read)
