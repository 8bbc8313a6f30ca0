"""Operators that nobody knows: what a node reads and gives, and the plugin class to begin with."""

from __future__ import annotations

import keyword
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plugin.fields import format_value
from ..plugin.onnx_node import STANDARD_DOMAINS, is_plugin_node, node_attributes
from ..validation.dataflow import walk
from .proto import has_shape, info_dims, node_name, numpy_type, tensors_of

if TYPE_CHECKING:
    import onnx

__all__ = ["guide", "signature", "skeleton", "unknown_nodes"]

_LIBRARIES = (*STANDARD_DOMAINS[1:], "com.ms.", "org.openvinotoolkit", "org.pytorch")
"""What the domains begin with whose operators a library below an engine may know."""
_TYPES = {bool: "bool", int: "int", float: "float", str: "str"}


def unknown_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Nodes of a domain of somebody's own that are no plugins, those inside of branches and loops included."""
    return [
        node for node in walk(model.graph.node)
        if node.domain and not node.domain.startswith(_LIBRARIES) and not is_plugin_node(node)
    ]  # fmt: skip


def signature(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    """What a node reads and gives: ``x: float32[N, 3, 8, 8], w: float32[3] (constant) → y: float32``.

    Args:
        model: With the types and dims of its tensors.
        node: Of the model.
    """
    known, constants = tensors_of(model.graph), {tensor.name for tensor in model.graph.initializer}

    def described(name: str) -> str:
        info = known.get(name)
        if info is None or not info.type.tensor_type.elem_type:
            return f"{name or 'nothing'}: type unknown" if name else "nothing"
        dims = f"[{', '.join(map(str, info_dims(info)))}]" if has_shape(known, name) else ""
        note = " (constant)" if name in constants else ""
        return f"{name}: {numpy_type(info.type.tensor_type.elem_type).name}{dims}{note}"

    return f"{', '.join(map(described, node.input))} → {', '.join(map(described, node.output))}"


def skeleton(node: onnx.NodeProto) -> str:
    """Python source of a plugin class that runs the node as it stands, once its two methods are filled in."""
    inputs = _identifiers(node.input, "x")
    outputs = [name for name in node.output if name]
    arguments = ", ".join(("self", *inputs))
    attributes = node_attributes(node)
    fields = [line for name, value in attributes.items() if (line := _field(name, value))]
    left_out = [name for name, value in attributes.items() if not _field(name, value)]
    several = len(outputs) > 1
    dims = (
        "(" + ", ".join(inputs[:1] * len(outputs) or ["()"] * len(outputs)) + ")" if several else (inputs or ["()"])[0]
    )
    name = node.op_type if node.op_type.isidentifier() and not keyword.iskeyword(node.op_type) else "Layer"
    named = "" if name == node.op_type else f", name={node.op_type!r}"
    lines = [
        "import pytrtplugins as ptp",
        *(["import numpy as np"] if any("np." in line for line in fields) else []),
        "", "",
        f"@ptp.plugin(namespace={node.domain!r}{named})",
        f"class {name}(ptp.Plugin):",
        f'    """What {node.op_type} computes."""',
        "",
        *(f"    {line}" for line in fields),
        *(f"    # attribute {item!r} cannot be a field" for item in left_out),
        *([""] if attributes else []),
        f"    def output_dims({arguments}):",
        f"        return {dims}  # the dims of {', '.join(outputs) or 'what it gives'}",
        "",
        f"    def compute({arguments}):",
        f'        raise NotImplementedError("compute {", ".join(outputs)}, in arrays")',
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def guide(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    """What to do about a node that nobody knows: its operator, signature and skeleton."""
    file = f"{re.sub(r'[^a-z0-9_]', '_', node.op_type.lower())}.py"
    return (
        f"the operator {node.domain}::{node.op_type} is not known (node {node_name(node)!r}: {signature(model, node)}).\n"
        f"Do: write it as a plugin, for instance in {file}, and name that file: pytrt run MODEL --plugins {file}, or import "
        f"it before build(...)\n\n{skeleton(node)}"
    )


def _identifiers(names: Any, default: str) -> list[str]:
    """Names of tensors as names of arguments, each once."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name.rpartition("/")[2]).strip("_") or default
        if not plain.isidentifier() or keyword.iskeyword(plain) or plain == "self":
            plain = f"{default}_{plain}"
        found.append(plain if plain not in found else f"{plain}_{len(found)}")
    return found


def _field(name: str, value: Any) -> str:
    """The declaration of a field; empty for what cannot be one."""
    if not name.isidentifier() or keyword.iskeyword(name):
        return ""
    if isinstance(value, np.ndarray):
        return f"{name}: np.ndarray"
    items = value if isinstance(value, list) else [value]
    if not items or type(items[0]) not in _TYPES or not all(math.isfinite(x) for x in items if isinstance(x, float)):
        return ""
    kind = _TYPES[type(items[0])]
    text = format_value(tuple(value) if isinstance(value, list) else value)
    return f"{name}: tuple[{kind}, ...] = {text}" if isinstance(value, list) else f"{name}: {kind} = {text}"
