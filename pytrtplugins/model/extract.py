"""The part of a network between tensors, as a separate network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ModelError
from ..validation.dataflow import tensors_read
from .fit import check_tensor, node_type
from .proto import copy_fields, copy_of, node_name, tensors_of

if TYPE_CHECKING:
    import onnx

__all__ = ["extract"]

_CHANGED = ("node", "input", "output", "initializer", "sparse_initializer", "value_info", "quantization_annotation")


def extract(model: onnx.ModelProto, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> onnx.ModelProto:
    """A model of the nodes that compute ``outputs`` from ``inputs``, with the constants that they read; `Graph.extract` says more.

    Args:
        model: With the types of its tensors; it is not changed.
        inputs: Names of the new model's inputs; None: those of the model that are needed.
        outputs: Names of the new model's outputs; None: those of the model.

    Raises:
        ModelError: there is no such tensor, its type is not known, or the outputs need other inputs than those.
    """
    graph, infos = model.graph, tensors_of(model.graph)
    names = {*infos, *(name for node in graph.node for name in node.output)}
    for name in (*(inputs or ()), *(outputs or ())):
        check_tensor(names, name)
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    given = [info.name for info in graph.input if info.name not in constants] if inputs is None else list(inputs)
    wanted = [info.name for info in graph.output] if outputs is None else list(outputs)
    nodes, needed = _between(graph.node, given, wanted)
    made = {name for node in nodes for name in node.output}
    missing = sorted(needed - {*given, *made, *constants})
    if missing:
        raise ModelError(
            f"{_listed(wanted)} cannot be computed from {_listed(given)} alone: "
            f"{_listed(missing)}, {'inputs' if missing[1:] else 'an input'} of the network, must be known too.\n"
            f"Do: name {'them' if missing[1:] else 'it'} among the inputs, or a tensor between",
            missing=missing,
        )
    if inputs is None:
        given = [name for name in given if name in needed]
    unused = [name for name in given if name not in needed]
    if unused or not nodes:
        raise ModelError(
            f"{_listed(wanted)} {'is' if not wanted[1:] else 'are'} not computed from {_listed(unused or given)}.\n"
            "Do: name inputs that lie before the outputs: `pytrt inspect MODEL --nodes` lists the nodes",
            name=(unused or given or wanted)[0],
        )
    for node in nodes:
        if both := [name for name in node.output if name in given]:
            raise ModelError(
                f"node {node_name(node)!r} ({node_type(node)}) writes {both[0]!r}, which is to be an input, and a tensor that is needed.\n"
                f"Do: name all that it writes as inputs, {_listed([name for name in node.output if name])}, or what it reads",
                node=node_name(node),
            )
    for name in (*given, *wanted):
        if not _has_type(infos.get(name)):
            raise ModelError(
                f"the element type of tensor {name!r} is not known, so it cannot be an input or output: its operator is unknown.\n"
                "Do: write that operator as a plugin and import it (--plugins FILE.py), or choose another tensor",
                name=name,
            )
    part = type(model)()
    copy_fields(model, part, without=("graph",))
    copy_fields(graph, part.graph, without=_CHANGED)
    part.graph.node.extend(nodes)
    part.graph.input.extend(infos[name] for name in given)
    part.graph.output.extend(infos[name] for name in wanted)
    kept = needed - set(given)
    part.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in kept)
    part.graph.sparse_initializer.extend(tensor for tensor in graph.sparse_initializer if tensor.values.name in kept)
    part.graph.value_info.extend(copy_of(infos[name]) for name in sorted(made - set(wanted)) if name in infos)
    return part


def _between(
    nodes: Sequence[onnx.NodeProto], given: Sequence[str], wanted: Sequence[str]
) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that lead from tensors to others, in order; and all tensors that they, and what is wanted, need."""
    kept: list[onnx.NodeProto] = []
    needed, known = set(wanted), set(given)
    for node in reversed(nodes):
        if not needed.isdisjoint(set(node.output) - known):
            kept.append(node)
            needed |= tensors_read(node)
    return kept[::-1], needed


def _has_type(info: onnx.ValueInfoProto | None) -> bool:
    """Whether the type is known; that of a sequence or an optional always is."""
    kind = None if info is None else info.type.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or bool(info and info.type.tensor_type.elem_type))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "no input"
