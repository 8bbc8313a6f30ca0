"""Extract the subgraph between tensors as a separate model."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ModelError
from ..utils.optional import onnx
from ..validation.dataflow import tensors_read
from .fit import check_tensor, node_type
from .proto import copy_fields, copy_of, node_name, tensors_of

__all__ = ["extract"]

_CHANGED = ("node", "input", "output", "initializer", "sparse_initializer", "value_info", "quantization_annotation")


def extract(model: onnx.ModelProto, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> onnx.ModelProto:
    """Return a model of the nodes that compute ``outputs`` from ``inputs``, with the constants that they read.

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
    input_names = [info.name for info in graph.input if info.name not in constants] if inputs is None else list(inputs)
    output_names = [info.name for info in graph.output] if outputs is None else list(outputs)
    nodes, needed = _nodes_between(graph.node, input_names, output_names)
    produced = {name for node in nodes for name in node.output}
    missing = sorted(needed - {*input_names, *produced, *constants})
    if missing:
        raise ModelError(
            f"{_quoted_names(output_names)} cannot be computed from {_quoted_names(input_names)} alone: "
            f"{_quoted_names(missing)}, {'inputs' if missing[1:] else 'an input'} of the network, must be known too.\n"
            f"Do: name {'them' if missing[1:] else 'it'} among the inputs, or a tensor between",
            missing=missing,
        )
    if inputs is None:
        input_names = [name for name in input_names if name in needed]
    unused = [name for name in input_names if name not in needed]
    if unused or not nodes:
        raise ModelError(
            f"{_quoted_names(output_names)} {'is' if not output_names[1:] else 'are'} not computed from "
            f"{_quoted_names(unused or input_names)}.\n"
            "Do: name inputs that lie before the outputs: `pytrt inspect MODEL --nodes` lists the nodes",
            name=(unused or input_names or output_names)[0],
        )
    for node in nodes:
        if overwritten := [name for name in node.output if name in input_names]:
            raise ModelError(
                f"node {node_name(node)!r} ({node_type(node)}) writes {overwritten[0]!r}, which is to be an input, "
                "and a tensor that is needed.\n"
                f"Do: name all that it writes as inputs, {_quoted_names([name for name in node.output if name])}, or what it reads",
                node=node_name(node),
            )
    for name in (*input_names, *output_names):
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
    part.graph.input.extend(infos[name] for name in input_names)
    part.graph.output.extend(infos[name] for name in output_names)
    needed_constants = needed - set(input_names)
    part.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed_constants)
    part.graph.sparse_initializer.extend(
        tensor for tensor in graph.sparse_initializer if tensor.values.name in needed_constants
    )
    part.graph.value_info.extend(copy_of(infos[name]) for name in sorted(produced - set(output_names)) if name in infos)
    return part


def _nodes_between(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[list[onnx.NodeProto], set[str]]:
    """Return the nodes between inputs and outputs, in order, and all tensors that they read or that are outputs."""
    selected: list[onnx.NodeProto] = []
    needed, input_names = set(outputs), set(inputs)
    for node in reversed(nodes):
        if not needed.isdisjoint(set(node.output) - input_names):
            selected.append(node)
            needed |= tensors_read(node)
    return selected[::-1], needed


def _has_type(info: onnx.ValueInfoProto | None) -> bool:
    """Return whether the type is known; that of a sequence or an optional always is."""
    kind = None if info is None else info.type.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or bool(info and info.type.tensor_type.elem_type))


def _quoted_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "no input"
