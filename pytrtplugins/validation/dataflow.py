"""Dataflow of ONNX graphs: readers of tensors, subgraphs, order of nodes, tensors computed from others."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ..utils.optional import onnx

__all__ = [
    "computed_from",
    "constants",
    "downstream",
    "given_inputs",
    "outer_scope_reads",
    "remove_dead_nodes",
    "rename_reads",
    "sort_nodes",
    "subgraphs",
    "tensors_read",
    "walk",
    "walk_graphs",
    "walk_with_facts",
]

T = TypeVar("T")
_GRAPHS = (0, 5, 10)  # AttributeProto.UNDEFINED, GRAPH, GRAPHS


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs inside a node: branches of an If, bodies of a Loop or Scan."""
    graphs: list[onnx.GraphProto] = []
    for (
        attribute
    ) in node.attribute:  # of all nodes, again and again: what the type says not to be there is not looked for
        if attribute.type in _GRAPHS:
            if attribute.HasField("g"):
                graphs.append(attribute.g)
            graphs.extend(attribute.graphs)
    return graphs


def walk(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for body in subgraphs(node):
            yield from walk(body.node)


def walk_with_facts(
    graph: onnx.GraphProto,
    of_tensor: Callable[[onnx.TensorProto], T],
    of_type: Callable[[onnx.TypeProto.Tensor], T | None],
    outer: Mapping[str, T] | None = None,
) -> Iterator[tuple[onnx.NodeProto, Mapping[str, T]]]:
    """Yield each node, also of subgraphs, with facts from the model about the tensors in its scope, by name.

    Args:
        graph: The graph.
        of_tensor: What is read from an initializer.
        of_type: What is read from a declared type; None where it does not say it.
        outer: What is known of the tensors around the graph.
    """
    facts = {**(outer or {}), **{tensor.name: of_tensor(tensor) for tensor in graph.initializer}}
    for info in (*graph.value_info, *graph.input, *graph.output):
        if (fact := of_type(info.type.tensor_type)) is not None:
            facts[info.name] = fact
    for node in graph.node:
        yield node, facts
        for body in subgraphs(node):
            yield from walk_with_facts(body, of_tensor, of_type, facts)


def walk_graphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs inside nodes, and those inside them."""
    for node in nodes:
        for body in subgraphs(node):
            yield body
            yield from walk_graphs(body.node)


def tensors_read(node: onnx.NodeProto) -> set[str]:
    """The names of the tensors that a node needs: its inputs, and the outer tensors that its subgraphs read."""
    return {name for name in node.input if name}.union(*map(outer_scope_reads, subgraphs(node)))


def outer_scope_reads(body: onnx.GraphProto) -> set[str]:
    """The names of the outer tensors that a subgraph reads."""
    read = {info.name for info in body.output}.union(*map(tensors_read, body.node))
    local_names = {item.name for item in (*body.input, *body.initializer)}
    local_names.update(tensor.values.name for tensor in body.sparse_initializer)
    return read.difference(local_names, *(node.output for node in body.node))


def given_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller gives: those that are not initializers."""
    initializers = {tensor.name for tensor in graph.initializer}
    return [info for info in graph.input if info.name not in initializers]


def constants(graph: onnx.GraphProto) -> set[str]:
    """Initializers, and what is computed from constants alone."""
    return computed_from({tensor.name for tensor in graph.initializer}, graph.node, ("Constant",))


def computed_from(names: Iterable[str], nodes: Iterable[onnx.NodeProto], makers: Collection[str] = ()) -> set[str]:
    """The tensors, those computed from them alone, and outputs of operator types ``makers``; nodes must be in order."""
    computed = set(names)
    for node in nodes:
        read = tensors_read(node)
        if node.op_type in makers or (read and read <= computed):
            computed.update(node.output)
    return computed


def rename_reads(node: onnx.NodeProto, old: str, new: str) -> None:
    """Rename a tensor that a node and its subgraphs read."""
    node.input[:] = [new if name == old else name for name in node.input]
    for body in subgraphs(node):
        if old in outer_scope_reads(body):
            for inner in body.node:
                rename_reads(inner, old, new)
            for info in body.output:
                info.name = new if info.name == old else info.name


def sort_nodes(nodes: Sequence[onnx.NodeProto]) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """Sort nodes so that each comes after the producers of its inputs, otherwise stable; also returns the nodes on cycles."""
    producers = {name: index for index, node in enumerate(nodes) for name in node.output}
    waits = [{producers[name] for name in tensors_read(node) if name in producers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, found in enumerate(waits):
        for producer in found:
            readers[producer].append(index)
    ready = [index for index, found in enumerate(waits) if not found]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waits[reader].discard(index)
            if not waits[reader]:
                heapq.heappush(ready, reader)
    finished = set(order)
    return [nodes[index] for index in order], [node for index, node in enumerate(nodes) if index not in finished]


def downstream(nodes: Iterable[onnx.NodeProto], names: Iterable[str]) -> set[str]:
    """The tensors, and all tensors computed from them; nodes must be in order."""
    tensors = set(names)
    for node in nodes:
        if not tensors.isdisjoint(tensors_read(node)):
            tensors.update(name for name in node.output if name)
    return tensors


def remove_dead_nodes(
    nodes: Sequence[onnx.NodeProto], loose: Iterable[str], outputs: Collection[str]
) -> list[onnx.NodeProto]:
    """Remove the nodes that made only ``loose`` tensors, and those before them whose outputs nothing reads any more."""
    live, loose = list(nodes), set(loose)
    while True:
        needed = set(outputs).union(*map(tensors_read, live))
        dead = [node for node in live if not loose.isdisjoint(node.output) and needed.isdisjoint(node.output)]
        if not dead:
            return live
        loose.update(*map(tensors_read, dead))
        live = [node for node in live if not any(node is item for item in dead)]
