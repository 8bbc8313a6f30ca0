"""The readers of each tensor in an ONNX graph."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import onnx

__all__ = [
    "bodies",
    "captured",
    "computed_from",
    "constants",
    "downstream",
    "given_inputs",
    "in_order",
    "reads",
    "rename_reads",
    "walk",
    "walk_graphs",
    "walk_known",
    "without_dead",
]

T = TypeVar("T")


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside a node: branches of an If, bodies of a Loop or Scan."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def walk(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from walk(body.node)


def walk_known(
    graph: onnx.GraphProto,
    of_tensor: Callable[[onnx.TensorProto], T],
    of_type: Callable[[onnx.TypeProto.Tensor], T | None],
    outer: Mapping[str, T] | None = None,
) -> Iterator[tuple[onnx.NodeProto, Mapping[str, T]]]:
    """The nodes, and those of the graphs inside them, each with what the model says of the tensors that it may read, by name.

    Args:
        graph: The graph.
        of_tensor: What is read from an initializer.
        of_type: What is read from a declared type; None where it does not say it.
        outer: What is known of the tensors around the graph.
    """
    known = {**(outer or {}), **{tensor.name: of_tensor(tensor) for tensor in graph.initializer}}
    for info in (*graph.value_info, *graph.input, *graph.output):
        if (fact := of_type(info.type.tensor_type)) is not None:
            known[info.name] = fact
    for node in graph.node:
        yield node, known
        for body in bodies(node):
            yield from walk_known(body, of_tensor, of_type, known)


def walk_graphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs inside nodes, and those inside them."""
    for node in nodes:
        for body in bodies(node):
            yield body
            yield from walk_graphs(body.node)


def reads(node: onnx.NodeProto) -> set[str]:
    """The tensors that a node needs: its inputs, and what the graphs inside it take from around them."""
    return {name for name in node.input if name}.union(*map(captured, bodies(node)))


def captured(body: onnx.GraphProto) -> set[str]:
    """The tensors that a body takes from around it."""
    read = {info.name for info in body.output}.union(*map(reads, body.node))
    made = {item.name for item in (*body.input, *body.initializer)}
    made.update(tensor.values.name for tensor in body.sparse_initializer)
    return read.difference(made, *(node.output for node in body.node))


def given_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller gives: those that are not initializers."""
    initializers = {tensor.name for tensor in graph.initializer}
    return [info for info in graph.input if info.name not in initializers]


def constants(graph: onnx.GraphProto) -> set[str]:
    """Initializers, and what is computed from constants alone."""
    return computed_from({tensor.name for tensor in graph.initializer}, graph.node, ("Constant",))


def computed_from(names: Iterable[str], nodes: Iterable[onnx.NodeProto], makers: Collection[str] = ()) -> set[str]:
    """The tensors, what is computed from them alone, and what operators of the types ``makers`` make; the nodes stand in order."""
    found = set(names)
    for node in nodes:
        read = reads(node)
        if node.op_type in makers or (read and read <= found):
            found.update(node.output)
    return found


def rename_reads(node: onnx.NodeProto, old: str, new: str) -> None:
    """Let a node, and the graphs inside it, read another tensor."""
    node.input[:] = [new if name == old else name for name in node.input]
    for body in bodies(node):
        if old in captured(body):
            for inner in body.node:
                rename_reads(inner, old, new)
            for info in body.output:
                info.name = new if info.name == old else info.name


def in_order(nodes: Sequence[onnx.NodeProto]) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """The nodes, each behind those whose outputs it reads, else as they were; and those that wait for each other."""
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    waits = [{producers[name] for name in reads(node) if name in producers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, found in enumerate(waits):
        for producer in found:
            readers[producer].append(index)
    ready = [index for index, found in enumerate(waits) if not found]
    done: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        done.append(index)
        for reader in readers[index]:
            waits[reader].discard(index)
            if not waits[reader]:
                heapq.heappush(ready, reader)
    if len(done) == len(nodes):
        return [nodes[index] for index in done], []
    finished = set(done)
    return [nodes[index] for index in done], [node for index, node in enumerate(nodes) if index not in finished]


def downstream(nodes: Iterable[onnx.NodeProto], names: Iterable[str]) -> set[str]:
    """The tensors, and all that is computed from them; the nodes stand in order."""
    found = set(names)
    for node in nodes:
        if not found.isdisjoint(reads(node)):
            found.update(name for name in node.output if name)
    return found


def without_dead(
    nodes: Sequence[onnx.NodeProto], loose: Iterable[str], outputs: Collection[str]
) -> list[onnx.NodeProto]:
    """The nodes less those that made only ``loose`` tensors and what led to them, which nothing reads any more."""
    kept, loose = list(nodes), set(loose)
    while True:
        needed = set(outputs).union(*map(reads, kept))
        dead = [node for node in kept if not loose.isdisjoint(node.output) and needed.isdisjoint(node.output)]
        if not dead:
            return kept
        loose.update(*map(reads, dead))
        kept = [node for node in kept if not any(node is item for item in dead)]
