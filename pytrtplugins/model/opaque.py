"""Opaque nodes: nodes of unknown operators, which stay unchanged. The rest of the model can be run.

Such nodes are TensorRT's own plugins (EfficientNMS_TRT), those of other projects (mmdeploy), and those of an owner's library.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import ModelError, UsageError
from ..plugin.onnx_node import is_plugin_node
from ..plugin.registry import is_registered
from ..utils.optional import onnx
from ..utils.repeated import keep_items, set_items
from ..utils.text_formats import shorten
from ..validation.dataflow import constants, tensors_read, walk
from .extract import extract
from .proto import copy_of, has_shape, node_name, tensors_of
from .skeleton import unknown_nodes

__all__ = [
    "computable_part",
    "hide_opaque",
    "opaque_boundary",
    "opaque_nodes",
    "show_opaque",
    "shown_node",
    "undescribed_tensors",
    "with_shapes",
]

_NAMESPACE, _HIDDEN = "plugin_namespace", "pytrtplugins_hidden_namespace"
_DOMAIN = "pytrtplugins.unknown"


def opaque_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes whose domain neither ONNX, nor an engine's library, nor a plugin class knows.

    Plugins that are not registered, and operators that stand in ONNX's own domain by mistake, are among them after `hide_opaque`.
    """
    return unknown_nodes(model)


def hide_opaque(model: onnx.ModelProto, *, misplaced: bool = True) -> onnx.ModelProto:
    """Return a copy in which opaque nodes are not marked as plugins and not in ONNX's domain; `show_opaque` undoes it.

    1. A plugin that is not registered is a node like any other then: nobody asks for its class.
    2. An operator that ONNX has in no version, and that stands in ONNX's own domain all the same, gets another domain: ONNX's
       checker and version converter refuse it in theirs. With ``misplaced=False`` it stays where it is.

    The model itself comes back where there are none.
    """

    def is_unregistered_plugin(node: onnx.NodeProto) -> bool:
        return is_plugin_node(node) and not is_registered(_namespace(node), node.op_type)

    def is_misplaced(node: onnx.NodeProto) -> bool:
        return misplaced and _is_misplaced(node)

    if not any(is_unregistered_plugin(node) or is_misplaced(node) for node in walk(model.graph.node)):
        return model
    hidden = copy_of(model)
    for node in walk(hidden.graph.node):
        if is_unregistered_plugin(node):
            _rename_attribute(node, _NAMESPACE, _HIDDEN)
        if is_misplaced(node):
            node.domain = _DOMAIN
    if _DOMAIN not in (item.domain for item in hidden.opset_import):
        hidden.opset_import.add(domain=_DOMAIN, version=1)
    return hidden


def show_opaque(model: onnx.ModelProto) -> None:
    """Undo `hide_opaque` in place."""
    for node in walk(model.graph.node):
        _rename_attribute(node, _HIDDEN, _NAMESPACE)
        if node.domain == _DOMAIN:
            node.domain = ""
    keep_items(model.opset_import, lambda item: item.domain != _DOMAIN)


def shown_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a node as it was before `hide_opaque`: itself, or a copy."""
    if node.domain != _DOMAIN and not any(attribute.name == _HIDDEN for attribute in node.attribute):
        return node
    shown = copy_of(node)
    shown.domain = "" if node.domain == _DOMAIN else node.domain
    _rename_attribute(shown, _HIDDEN, _NAMESPACE)
    return shown


def _is_misplaced(node: onnx.NodeProto) -> bool:
    return not node.domain and node.op_type not in _onnx_operators()


@functools.cache
def _onnx_operators() -> frozenset[str]:
    return frozenset(schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain)


def with_shapes(model: onnx.ModelProto, shapes: Mapping[str, tuple[Sequence[int | str], str]]) -> onnx.ModelProto:
    """Return a copy of a model with dims and types for tensors which ONNX cannot infer.

    Args:
        model: The model; it is not changed.
        shapes: Tensor → its dims, with names where they are free, and its type, such as ``"float32"``.

    Raises:
        UsageError: the model has no such tensor, or no node without a class gives it.
    """
    described = copy_of(model)
    opaque_outputs = [name for node in opaque_nodes(hide_opaque(described)) for name in node.output if name]
    outputs = {info.name: info for info in described.graph.output}
    for name, (dims, kind) in shapes.items():
        if name not in opaque_outputs:
            raise UsageError(
                f"shape of {shorten(name)}: no node that nobody has a class for gives such a tensor; "
                f"they give {', '.join(map(repr, opaque_outputs)) or 'none'}.\nDo: pytrt inspect MODEL --nodes",
                name=name,
            )
        element_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        info = onnx.helper.make_tensor_value_info(name, element_type, list(dims))
        if name in outputs:
            outputs[name].type.CopyFrom(info.type)
            continue
        set_items(
            described.graph.value_info, [*(item for item in described.graph.value_info if item.name != name), info]
        )
    return described


def computable_part(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the part of a model before its opaque nodes: its outputs are their inputs, and outputs that do not depend on them.

    Args:
        model: A prepared model; it is not changed. It comes back itself where it has no such nodes.

    Raises:
        ModelError: opaque nodes read the inputs, and nothing lies beside them.
    """
    if not opaque_nodes(model):
        return model
    dependent = _dependent_tensors(model)
    ends = [info.name for info in model.graph.output if info.name not in dependent]
    ends += [name for name in opaque_boundary(model).values() if name not in ends]
    inputs = constants(model.graph) | {info.name for info in model.graph.input}
    ends = [name for name in ends if name not in inputs]
    if not ends:
        node = opaque_nodes(model)[0]
        raise ModelError(
            f"node {node_name(node)!r} ({node.domain}::{node.op_type}) has no class here, and nothing of the model can be computed "
            "without it.\nDo: give it a class (docs/how-to/custom_layer.md), and its module with --plugins",
            node=node.name,
        )
    return extract(model, None, ends)


def opaque_boundary(model: onnx.ModelProto) -> dict[str, str]:
    """Return the border before the opaque nodes: node and input index, such as ``"nms, input 0"`` → tensor.

    The nodes are opaque ones and those that depend on them; the tensors are those that can be computed without them.
    """
    dependent, constant_names = _dependent_tensors(model), constants(model.graph)
    boundary: dict[str, str] = {}
    for node in model.graph.node:
        if not dependent.isdisjoint(node.output):
            for index, name in enumerate(node.input):
                if name and name not in dependent and name not in constant_names:
                    boundary[f"{node_name(node)}, input {index}"] = name
    return boundary


def undescribed_tensors(model: onnx.ModelProto) -> list[str]:
    """Return outputs of opaque nodes without declared dims or type, where these are needed.

    They must be known where other nodes read them, or where an output of the model has no dims for that reason.
    """
    infos, opaque = tensors_of(model.graph), opaque_nodes(model)
    undescribed = [name for node in opaque for name in node.output if name and not has_shape(infos, name)]
    read = {
        name for node in model.graph.node if not any(node is other for other in opaque) for name in tensors_read(node)
    }
    outputs = {info.name for info in model.graph.output if not has_shape(infos, info.name)}
    return [name for name in undescribed if name in read or name in outputs]


def _dependent_tensors(model: onnx.ModelProto) -> set[str]:
    """Return the outputs of opaque nodes, and all tensors computed from these."""
    opaque = opaque_nodes(model)
    dependent: set[str] = set()
    for node in model.graph.node:
        is_opaque = any(
            inner is other for inner in walk([node]) for other in opaque
        )  # or holds one in a branch or loop
        if is_opaque or not dependent.isdisjoint(tensors_read(node)):
            dependent.update(name for name in node.output if name)
    return dependent


def _namespace(node: onnx.NodeProto) -> str:
    texts = [attribute.s.decode("utf-8", "replace") for attribute in node.attribute if attribute.name == _NAMESPACE]
    return texts[0] if texts else node.domain


def _rename_attribute(node: onnx.NodeProto, old: str, new: str) -> None:
    for attribute in node.attribute:
        if attribute.name == old:
            attribute.name = new
