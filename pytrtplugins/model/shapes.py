"""Infer the shapes of an edited ONNX graph again, and refuse an edit whose shapes a node does not accept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import DimsError, ModelError, PluginError
from ..plugin.onnx_node import from_node, is_plugin_node
from ..tensor import Dims, is_concrete
from ..utils.optional import onnx
from ..utils.repeated import keep_items, set_items
from ..validation import infer_node, validated
from ..validation.dataflow import downstream, tensors_read
from .decompose import add_shapes
from .proto import copy_of, has_shape, info_dims, infos_of, node_name, without_data

__all__ = ["dims_text", "import_domain", "infer_after_change", "infer_without_weights", "known_infos", "store"]

_UNREGISTERED = "unregistered"  # in copies for inference: the domain of plugins that nobody registered


def known_infos(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return name → `ValueInfoProto` of each tensor with a known shape, without constants."""
    infos = infos_of(model.graph)
    return {name: info for name, info in infos.items() if has_shape(infos, name)}


def infer_without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without large weights and with inferred shapes; unregistered plugins count as unknown operators."""
    light = without_data(model)
    for node in light.graph.node:
        if is_plugin_node(node) and not _is_usable(node):
            node.domain = _UNREGISTERED
            keep_items(node.attribute, lambda attribute: attribute.name != "plugin_namespace")
    for domain in {node.domain for node in light.graph.node}:
        import_domain(light, domain)
    return add_shapes(validated(light, large=False))


def import_domain(model: onnx.ModelProto, domain: str) -> None:
    """Add a domain to the model's opset imports if it is missing."""
    if all(item.domain != domain for item in model.opset_import):
        model.opset_import.add(domain=domain, version=1)


def infer_after_change(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    new: onnx.NodeProto,
    replaces: Mapping[str, str],
    renamed: Mapping[str, str],
) -> dict[str, onnx.ValueInfoProto]:
    """Infer the shapes of a model after a change of its nodes.

    Args:
        model: The model before; it is not changed.
        nodes: The nodes after, in order.
        new: The new node, one of them.
        replaces: Each output of the new node → the tensor whose readers now read it.
        renamed: New name → old name of a tensor.

    Returns:
        Name → description of each tensor whose shape is known then, and of each output that changes.

    Raises:
        ModelError: an operator behind the new node cannot take what it gives.
        DimsError: a plugin cannot.
    """
    before = known_infos(model)
    stale = downstream(nodes, new.output)
    trial = without_data(model)
    set_items(trial.graph.node, nodes)
    keep_items(trial.graph.value_info, lambda info: info.name not in stale)
    trial.graph.value_info.extend(_with_name(before[old], name) for name, old in renamed.items() if old in before)
    for info in trial.graph.output:
        if info.name in stale:
            info.ClearField("type")
    try:
        result = infer_without_weights(trial)
    except DimsError as error:
        if error.facts.get("node") == new.name:
            raise
        raise DimsError(f"{_change_text(new, replaces, before, {})}; behind it, {error}", **error.facts) from error
    after = known_infos(result)
    if all(name in after and _same_type(after[name], before.get(old)) for name, old in replaces.items()):
        # what only the file knows, behind operators that nobody knows, is still true
        return {name: info for name, info in before.items() if name in stale} | after
    _check_readers(result, nodes, stale, _change_text(new, replaces, before, after))
    unknown = {info.name: info for info in result.graph.output if info.name in stale and info.name not in after}
    for info in model.graph.output:
        if info.name in unknown and not unknown[info.name].type.tensor_type.elem_type:
            unknown[info.name].type.CopyFrom(info.type)
            unknown[info.name].type.tensor_type.ClearField("shape")
    return after | unknown


def store(model: onnx.ModelProto, infos: Mapping[str, onnx.ValueInfoProto]) -> None:
    """Replace a model's ``value_info`` and the types of its outputs, in place."""
    graph = model.graph
    outputs = {info.name for info in graph.output}
    inner = [name for node in graph.node for name in node.output if name and name not in outputs]
    set_items(graph.value_info, (infos[name] for name in inner if name in infos))
    for info in graph.output:
        if info.name in infos:
            info.type.CopyFrom(infos[info.name].type)


def dims_text(dims: Dims | None) -> str:
    """Return dims as text for messages."""
    return "of unknown dims" if dims is None else f"({', '.join(map(str, dims))})"


def _change_text(
    new: onnx.NodeProto,
    replaces: Mapping[str, str],
    before: Mapping[str, onnx.ValueInfoProto],
    after: Mapping[str, onnx.ValueInfoProto],
) -> str:
    gives = ", ".join(
        f"{name!r} {dims_text(info_dims(after[name])) if name in after else ''}".strip()
        + (f" in place of {dims_text(info_dims(before[old]))}" if old in before else "")
        for name, old in replaces.items()
    )
    return f"node {new.name!r} ({from_node(new)!r}) gives {gives}"


def _check_readers(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto], stale: set[str], change: str) -> None:
    """Raise an error for the first node that does not accept the new shapes of its inputs."""
    types = {name: info.type for name, info in known_infos(model).items()}
    data = {tensor.name: tensor for tensor in model.graph.initializer}
    data |= {
        node.output[0]: a.t for node in nodes if node.op_type == "Constant" for a in node.attribute if a.name == "value"
    }
    for name, tensor in data.items():
        types.setdefault(name, onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
    for node in nodes:
        if stale.isdisjoint(tensors_read(node)) or not tensors_read(node) <= types.keys():
            continue
        reason = _refusal(node, types, data, model.opset_import)
        if reason:
            inputs = ", ".join(f"{name!r} {dims_text(_type_dims(types[name]))}" for name in node.input if name)
            raise ModelError(
                f"{change}; node {node_name(node)!r} ({node.op_type}) cannot take {inputs}: {reason}",
                node=node.name,
            )


def _refusal(
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
    opsets: Sequence[onnx.OperatorSetIdProto],
) -> str:
    """Return why a node does not accept its inputs; ``""`` if it does, or if its operator is unknown."""
    version = next((item.version for item in opsets if item.domain == node.domain), 0)
    if not onnx.defs.has(node.op_type, version, node.domain):
        return ""
    try:
        output_types = infer_node(node, types, data, version)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:  # of dims; of element types
        return str(error).rpartition("]")[2].strip()
    return _unchecked_by_onnx(node, {**types, **output_types})


def _unchecked_by_onnx(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> str:
    """Check what ONNX's inference does not: channels of a convolution, number of elements of a Reshape; return the error."""
    if node.op_type in ("Conv", "ConvTranspose"):
        x, weights = (_type_dims(types[name]) for name in node.input[:2])
        group = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
        expected: Any = weights[1] * group if node.op_type == "Conv" else weights[0]
        if is_concrete(x[1]) and is_concrete(expected) and x[1] != expected:
            return f"the weights are for {expected} channels"
    if node.op_type == "Reshape" and types[node.output[0]].tensor_type.HasField("shape"):
        dims = [_type_dims(types[name]) for name in (node.input[0], node.output[0])]
        (before, free), (after, also_free) = (_element_count(item) for item in dims)
        if free == also_free and before != after:
            return f"{dims_text(dims[1])} has another number of elements"
    return ""


def _element_count(dims: Dims) -> tuple[int, Counter[str]]:
    return math.prod(int(dim) for dim in dims if is_concrete(dim)), Counter(str(d) for d in dims if not is_concrete(d))


def _type_dims(kind: onnx.TypeProto) -> Dims:
    return info_dims(onnx.ValueInfoProto(type=kind))


def _same_type(info: onnx.ValueInfoProto, other: onnx.ValueInfoProto | None) -> bool:
    if other is None:
        return False
    return info_dims(info) == info_dims(other) and info.type.tensor_type.elem_type == other.type.tensor_type.elem_type


def _with_name(info: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    twin = copy_of(info)
    twin.name = name
    return twin


def _is_usable(node: onnx.NodeProto) -> bool:
    try:
        from_node(node)
    except (PluginError, ModelError):
        return False
    return True
