"""Find which nodes of a network an engine fused into one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...model.operator_traits import Trait, operators
from ...utils.optional import onnx
from ...validation.dataflow import given_inputs

__all__ = ["FusedKernel", "Fusion", "Part", "fusion_of", "part_of"]

_RETYPING = operators(Trait.RETYPES)
"""Engines do this within other kernels."""


@dataclass(frozen=True)
class Part:
    """A kernel of an engine, and what its library says of it.

    Attributes:
        name: As the engine calls it.
        kind: The library's name for the kind of kernel, such as ``"Convolution"``.
        inputs: Tensors that it reads, by their names in the model that the engine was given.
        outputs: Tensors that it writes.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class FusedKernel:
    """A kernel of an engine, and the nodes of the model that it computes.

    Attributes:
        name: As the engine calls it.
        kind: The library's name for the kind of kernel.
        nodes: Places of the nodes in the model, in the model's order; none where the engine added the part, such as a cast.
    """

    name: str
    kind: str
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Fusion:
    """The nodes of a network, and the kernels that compute them.

    Attributes:
        names: Names of the model's nodes.
        operators: Operators of the model's nodes.
        edges: Pairs of nodes of which the second reads what the first gives.
        kernels: What the engine runs, in its order.
        before: Places of the nodes that no kernel computes: they are computed while the engine is built, or change nothing.
    """

    names: tuple[str, ...]
    operators: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    kernels: tuple[FusedKernel, ...]
    before: tuple[int, ...]

    @property
    def computing(self) -> tuple[FusedKernel, ...]:
        """The kernels that compute nodes of the model."""
        return tuple(kernel for kernel in self.kernels if kernel.nodes)


def part_of(name: str, kind: str, nodes: Sequence[onnx.NodeProto]) -> Part:
    """A part that computes these nodes: what they read from others, and what they give."""
    outputs = [name for node in nodes for name in node.output if name]
    inputs = [name for node in nodes for name in node.input if name and name not in outputs]
    return Part(name, kind, tuple(dict.fromkeys(inputs)), tuple(outputs))


def fusion_of(model: onnx.ModelProto, parts: Iterable[Part], built: onnx.ModelProto | None = None) -> Fusion:
    """Find the nodes of a model that each part computes.

    These are the nodes between the tensors that the part reads and those that it writes. Passes keep the names of tensors, so that the
    model may be the one that the user has, before any pass.

    Args:
        model: The model.
        parts: What the engine runs, in its order.
        built: The model that the engine was given, whose Q, DQ and casts give tensors further names; None: there are none.
    """
    same = {} if built is None else _same_tensors(built)
    nodes = list(model.graph.node)
    maker = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    dynamic = _dynamic_nodes(model)
    owner: dict[int, int] = {}
    nodes_of_parts: list[tuple[Part, list[int]]] = []
    for number, part in enumerate(parts):
        inputs, outputs = ({same.get(name, name) for name in names} for names in (part.inputs, part.outputs))
        waiting, mine = sorted(name for name in outputs - inputs if name in maker), list[int]()
        while waiting:
            place = maker[waiting.pop()]
            if place in owner or place not in dynamic:
                continue
            owner[place] = number
            mine.append(place)
            waiting += [name for name in nodes[place].input if name in maker and name not in inputs]
        nodes_of_parts.append((part, mine))
    _assign_to_readers(nodes, maker, dynamic, owner, nodes_of_parts)
    kernels = [FusedKernel(part.name, part.kind, tuple(sorted(mine))) for part, mine in nodes_of_parts]
    edges = [(maker[name], place) for place, node in enumerate(nodes) for name in node.input if name in maker]
    return Fusion(
        tuple(node.name or (node.output[0] if node.output else "") for node in nodes),
        tuple(node.op_type for node in nodes),
        tuple(dict.fromkeys(edges)),
        tuple(kernels),
        tuple(place for place in range(len(nodes)) if place not in owner),
    )


def _same_tensors(model: onnx.ModelProto) -> dict[str, str]:
    """Tensor → the tensor that it converts: through Q, DQ and Cast."""
    sources: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type in _RETYPING and node.output:
            sources[node.output[0]] = sources.get(node.input[0], node.input[0])
    return sources


def _assign_to_readers(
    nodes: Sequence[onnx.NodeProto],
    maker: dict[str, int],
    dynamic: set[int],
    owner: dict[int, int],
    nodes_of_parts: Sequence[tuple[Part, list[int]]],
) -> None:
    """A node that no part names, such as a subtraction that became part of a product, belongs to the part that reads its results."""
    readers: dict[int, set[int]] = {}
    for place in range(len(nodes) - 1, -1, -1):
        if place in dynamic and place not in owner and len(owners := readers.get(place, set())) == 1:
            owner[place] = next(iter(owners))
            nodes_of_parts[owner[place]][1].append(place)
        if place in owner:
            for name in nodes[place].input:
                if name in maker:
                    readers.setdefault(maker[name], set()).add(owner[place])


def _dynamic_nodes(model: onnx.ModelProto) -> set[int]:
    """Indices of nodes that depend on the network's inputs."""
    dynamic_tensors = {info.name for info in given_inputs(model.graph)}
    places = set()
    for place, node in enumerate(model.graph.node):
        if any(name in dynamic_tensors for name in node.input):
            places.add(place)
            dynamic_tensors.update(node.output)
    return places
