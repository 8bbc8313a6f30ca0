"""Nodes that nobody here has a class for: they stay as they are, and what does not depend on them can be run.

Such nodes are TensorRT's own plugins (EfficientNMS_TRT), those of other projects (mmdeploy), and those of an owner's library.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ModelError, UsageError
from ..plugin.onnx_node import is_plugin_node
from ..plugin.registry import is_registered
from ..utils.optional import require
from ..utils.repeated import keep_items, set_items
from ..utils.text_formats import shorten
from ..validation.dataflow import constants, tensors_read, walk
from .extract import extract
from .proto import copy_of, has_shape, node_name, tensors_of
from .skeleton import unknown_nodes

if TYPE_CHECKING:
    import onnx

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
    """Nodes of a domain that neither ONNX, nor a library below an engine, nor a plugin class knows.

    Plugins that are not registered, and operators that stand in ONNX's own domain by mistake, are among them after `hide_opaque`.
    """
    return unknown_nodes(model)


def hide_opaque(model: onnx.ModelProto, *, misplaced: bool = True) -> onnx.ModelProto:
    """A copy in which opaque nodes have a domain of their own, and do not say that they are plugins; `show_opaque` undoes it.

    1. A plugin that is not registered is a node like any other then: nobody asks for its class.
    2. An operator that ONNX has in no version, and that stands in ONNX's own domain all the same, gets another domain: ONNX's
       checker and version converter refuse it in theirs. With ``misplaced=False`` it stays where it is.

    The model itself comes back where there are none.
    """

    def is_plugins(node: onnx.NodeProto) -> bool:
        return is_plugin_node(node) and not is_registered(_namespace(node), node.op_type)

    def is_misplaced(node: onnx.NodeProto) -> bool:
        return misplaced and _is_misplaced(node)

    if not any(is_plugins(node) or is_misplaced(node) for node in walk(model.graph.node)):
        return model
    hidden = copy_of(model)
    for node in walk(hidden.graph.node):
        if is_plugins(node):
            _rename_attribute(node, _NAMESPACE, _HIDDEN)
        if is_misplaced(node):
            node.domain = _DOMAIN
    if _DOMAIN not in (item.domain for item in hidden.opset_import):
        hidden.opset_import.add(domain=_DOMAIN, version=1)
    return hidden


def show_opaque(model: onnx.ModelProto) -> None:
    """Give the nodes of a model back what `hide_opaque` took; the model changes."""
    for node in walk(model.graph.node):
        _rename_attribute(node, _HIDDEN, _NAMESPACE)
        if node.domain == _DOMAIN:
            node.domain = ""
    keep_items(model.opset_import, lambda item: item.domain != _DOMAIN)


def shown_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node as it was before `hide_opaque`: itself, or a copy."""
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
    defs = require("onnx.defs", extra="onnx", feature="reading ONNX models")
    return frozenset(schema.name for schema in defs.get_all_schemas_with_history() if not schema.domain)


def with_shapes(model: onnx.ModelProto, shapes: Mapping[str, tuple[Sequence[int | str], str]]) -> onnx.ModelProto:
    """A copy of a model that says dims and types of tensors which ONNX cannot infer.

    Args:
        model: The model; it is not changed.
        shapes: Tensor → its dims, with names where they are free, and its type, such as ``"float32"``.

    Raises:
        UsageError: the model has no such tensor, or no node without a class gives it.
    """
    onnx = require("onnx", extra="onnx", feature="working on ONNX models")
    described = copy_of(model)
    given = [name for node in opaque_nodes(hide_opaque(described)) for name in node.output if name]
    outputs = {info.name: info for info in described.graph.output}
    for name, (dims, kind) in shapes.items():
        if name not in given:
            raise UsageError(
                f"shape of {shorten(name)}: no node that nobody has a class for gives such a tensor; "
                f"they give {', '.join(map(repr, given)) or 'none'}.\nDo: pytrt inspect MODEL --nodes",
                name=name,
            )
        element_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        info = onnx.helper.make_tensor_value_info(name, element_type, list(dims))
        if name in outputs:
            outputs[name].type.CopyFrom(info.type)
            continue
        set_items(
            described.graph.value_info, [*(each for each in described.graph.value_info if each.name != name), info]
        )
    return described


def computable_part(model: onnx.ModelProto) -> onnx.ModelProto:
    """The part of a model that does not depend on opaque nodes: it ends at what they read, and at the outputs before them.

    Args:
        model: A prepared model; it is not changed. It comes back itself where it has no such nodes.

    Raises:
        ModelError: opaque nodes read the inputs, and nothing lies beside them.
    """
    if not opaque_nodes(model):
        return model
    behind = _behind(model)
    ends = [info.name for info in model.graph.output if info.name not in behind]
    ends += [name for name in opaque_boundary(model).values() if name not in ends]
    fixed = constants(model.graph) | {info.name for info in model.graph.input}
    ends = [name for name in ends if name not in fixed]
    if not ends:
        node = opaque_nodes(model)[0]
        raise ModelError(
            f"node {node_name(node)!r} ({node.domain}::{node.op_type}) has no class here, and nothing of the model can be computed "
            "without it.\nDo: give it a class (docs/how-to/custom_layer.md), and its module with --plugins",
            node=node.name,
        )
    return extract(model, None, ends)


def opaque_boundary(model: onnx.ModelProto) -> dict[str, str]:
    """Node and index of an input, such as ``"nms, input 0"`` → the tensor that the node reads there.

    The nodes are opaque ones and those that depend on them; the tensors are those that can be computed without them.
    """
    behind, fixed = _behind(model), constants(model.graph)
    found: dict[str, str] = {}
    for node in model.graph.node:
        if not behind.isdisjoint(node.output):
            for index, name in enumerate(node.input):
                if name and name not in behind and name not in fixed:
                    found[f"{node_name(node)}, input {index}"] = name
    return found


def undescribed_tensors(model: onnx.ModelProto) -> list[str]:
    """Tensors that opaque nodes give, whose dims or type the model does not say, and which must be known.

    They must be known where other nodes read them, or where an output of the model has no dims for that reason.
    """
    known, opaque = tensors_of(model.graph), opaque_nodes(model)
    given = [name for node in opaque for name in node.output if name and not has_shape(known, name)]
    read = {
        name for node in model.graph.node if not any(node is each for each in opaque) for name in tensors_read(node)
    }
    outputs = {info.name for info in model.graph.output if not has_shape(known, info.name)}
    return [name for name in given if name in read or name in outputs]


def _behind(model: onnx.ModelProto) -> set[str]:
    """Tensors that opaque nodes give, and all that is computed from these."""
    opaque = opaque_nodes(model)
    found: set[str] = set()
    for node in model.graph.node:
        is_opaque = any(inner is each for inner in walk([node]) for each in opaque)  # or holds one in a branch or loop
        if is_opaque or not found.isdisjoint(tensors_read(node)):
            found.update(name for name in node.output if name)
    return found


def _namespace(node: onnx.NodeProto) -> str:
    texts = [attribute.s.decode("utf-8", "replace") for attribute in node.attribute if attribute.name == _NAMESPACE]
    return texts[0] if texts else node.domain


def _rename_attribute(node: onnx.NodeProto, old: str, new: str) -> None:
    for attribute in node.attribute:
        if attribute.name == old:
            attribute.name = new
