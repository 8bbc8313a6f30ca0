"""Check nodes of ONNX's own operators against the schemas of the installed onnx; engines check all others."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ModelError
from ..utils.optional import onnx
from .dataflow import given_inputs, subgraphs
from .tensors import check_sparse_tensor, check_tensor
from .words import allowed_values

__all__ = ["CONTRIB", "check_node", "has_schema", "node_text", "standard_domain", "standard_opset"]

_LEAST = {  # numbers that operators divide by, step with, or count with
    **dict.fromkeys(("strides", "dilations", "kernel_shape", "group", "blocksize", "block_size", "num_outputs"), 1),
    **dict.fromkeys(("hidden_size", "num_groups", "num_heads", "q_num_heads", "kv_num_heads"), 1),
    **dict.fromkeys(("output_height", "output_width", "pooled_shape"), 1),
}
CONTRIB = "com.microsoft"
"""The domain of onnxruntime's own operators."""
_ELEMENT_TYPES = frozenset(("dtype", "output_datatype", "output_dtype", "stash_type", "to"))
"""Attributes that are the number of an element type."""
_SCAN_AXES = 9  # the opset from which on Scan has no input of lengths
_LARGEST = 2**31 - 1  # of those: libraries keep them in 32 bits


def standard_domain(domain: str) -> str:
    """A domain; that of ONNX's own operators has two names."""
    return "" if domain == "ai.onnx" else domain


def standard_opset(model: onnx.ModelProto | onnx.FunctionProto) -> int:
    """The version of ONNX's own operators that a model or a function imports; 0 if none."""
    return next((item.version for item in model.opset_import if not standard_domain(item.domain)), 0)


def has_schema(node: onnx.NodeProto, opset: int) -> bool:
    """Whether a node is an operator of ONNX's own in an opset; `check_node` looks at the inputs of no other."""
    return not standard_domain(node.domain) and _schema(node.op_type, opset, "") is not None


def node_text(node: onnx.NodeProto) -> str:
    """A node for messages: its name, or its first output's, and its operator."""
    name = node.name or next(filter(None, node.output), "")
    return f"node {name[:200]!r} ({node.op_type[:100]})"


def check_node(
    node: onnx.NodeProto,
    opsets: Mapping[str, int],
    functions: frozenset[tuple[str, str]],
    where: str,
    weights_location: str | None,
) -> None:
    """Check inputs, outputs and attributes of a node against the operator's schema.

    Graphs in its attributes are not looked at. ``functions`` are domain and name of each local function, which come before
    operators; ``where`` is the body or function around it, for messages.
    """
    text, domain = f"{where}{node_text(node)}", standard_domain(node.domain)
    if not node.op_type:
        raise ModelError(f"{text} names no operator", node=node.name)
    _check_attributes(node, text, weights_location)
    if (domain, node.op_type) in functions:
        return
    if domain == CONTRIB:  # no schema says the types of its attributes
        for attribute in node.attribute:
            _check_value(attribute, text, node)
    version = opsets.get(domain)
    if version is None:
        if domain:
            return  # whoever knows the domain knows its version
        raise ModelError(
            f"{text}: the model does not say in opset_import which version of ONNX's operators it uses", node=node.name
        )
    schema = _schema(node.op_type, version, domain)
    if schema is None:
        return
    for what, count, (low, high) in (
        ("inputs", len(node.input), schema.inputs),
        ("outputs", len(node.output), schema.outputs),
    ):
        if not low <= count <= high:
            expected = str(low) if low == high else f"at least {low}" if high > 2**30 else f"{low} to {high}"
            raise ModelError(
                f"{text} has {count} {what if count != 1 else what[:-1]}; {node.op_type} of opset {version} has {expected}",
                node=node.name,
                expected=expected,
                found=count,
            )
    for index, name in enumerate(node.input):
        needed = schema.needed[min(index, len(schema.needed) - 1)] if schema.needed else ""
        if not name and needed:
            raise ModelError(
                f"{text} leaves out its input {index}, {needed}, which {node.op_type} needs", node=node.name
            )
    attributes = {attribute.name: attribute for attribute in node.attribute}
    for name, attribute in attributes.items():
        if name not in schema.attributes:
            raise ModelError(
                f"{text} has the attribute {name[:200]!r}; {node.op_type} of opset {version} has {', '.join(schema.attributes) or 'none'}",
                node=node.name,
                attribute=name,
            )
        if attribute.type != schema.attributes[name]:
            raise ModelError(
                f"{text}: attribute {name!r} is {_type_name(attribute.type)}; expected {_type_name(schema.attributes[name])}",
                node=node.name,
                attribute=name,
            )
        _check_value(attribute, text, node)
        if name == "equation":
            _check_equation(attribute, text, node)
    missing = [name for name in schema.required if name not in attributes]
    if missing:
        raise ModelError(
            f"{text} lacks the attribute {missing[0]!r}, which {node.op_type} needs",
            node=node.name,
            attribute=missing[0],
        )
    if node.op_type == "Constant" and len(node.attribute) != 1:
        raise ModelError(
            f"{text} has {len(node.attribute)} attributes; a Constant has one, which is its value", node=node.name
        )
    if node.op_type in ("Loop", "Scan") and not domain:
        _check_body(node, text, version)


def _check_body(node: onnx.NodeProto, text: str, version: int) -> None:
    """Check that a Loop or Scan has as many inputs as its subgraph reads."""
    body = subgraphs(node)[0]
    body_inputs, input_count = len(given_inputs(body)), len(node.input)
    expected = (
        max(input_count, 2) if node.op_type == "Loop" else input_count - 1 if version < _SCAN_AXES else input_count
    )
    if body_inputs != expected:
        raise ModelError(
            f"{text} has {input_count} inputs, and its body has {body_inputs}; {node.op_type} of opset {version} gives its body {expected}",
            node=node.name,
            expected=expected,
            found=body_inputs,
        )


@dataclass(frozen=True)
class _Schema:
    """The required parts of an operator's schema; ``needed``: the name of each required input, an empty text for optional ones."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    needed: tuple[str, ...]
    attributes: Mapping[str, int]
    required: tuple[str, ...]


@functools.lru_cache(4096)
def _schema(op_type: str, version: int, domain: str) -> _Schema | None:
    if not onnx.defs.has(op_type, version, domain):
        return None
    schema: Any = onnx.defs.get_schema(op_type, version, domain)
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return _Schema(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple("" if item.option == optional else item.name for item in schema.inputs),
        {name: int(attribute.type.value) for name, attribute in schema.attributes.items()},
        tuple(name for name, attribute in schema.attributes.items() if attribute.required),
    )


def _check_attributes(node: onnx.NodeProto, text: str, weights_location: str | None) -> None:
    """Check attributes of any node, also of unknown operators."""
    names = set[str]()
    for attribute in node.attribute:
        name = attribute.name
        if not name or name in names:
            raise ModelError(
                f"{text} has {'two attributes ' + repr(name[:200]) if name else 'an attribute without a name'}",
                node=node.name,
            )
        names.add(name)
        if not attribute.type and not attribute.ref_attr_name:
            raise ModelError(f"{text}: attribute {name[:200]!r} has no type", node=node.name, attribute=name)
        where = f"{text}: attribute {name[:200]!r}"
        for tensor in ([attribute.t] if attribute.HasField("t") else []) + list(attribute.tensors):
            check_tensor(tensor, where, weights_location)
        for sparse in ([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []) + list(
            attribute.sparse_tensors
        ):
            check_sparse_tensor(sparse, where)


def _check_value(attribute: onnx.AttributeProto, text: str, node: onnx.NodeProto) -> None:
    """Require numbers and words that mean something; an empty word is left to engines."""
    words = allowed_values(node.op_type, standard_domain(node.domain), attribute.name)
    word = attribute.s.decode(errors="replace")
    if word and words and word not in words:
        raise ModelError(
            f"{text}: {node.op_type} with {attribute.name}={word[:80]!r} is not known to ONNX; it knows {', '.join(words)}",
            node=node.name,
            attribute=attribute.name,
        )
    _check_numbers(attribute, text, node)


def _check_numbers(attribute: onnx.AttributeProto, text: str, node: onnx.NodeProto) -> None:
    if attribute.name in _ELEMENT_TYPES and not attribute.ref_attr_name:
        _check_element_type(attribute, text, node)
    minimum = _LEAST.get(attribute.name)
    if minimum is None or attribute.ref_attr_name:
        return
    values = [attribute.i] if attribute.type == attribute.INT else list(attribute.ints)
    wrong = [value for value in values if not minimum <= value <= _LARGEST]
    if wrong:
        raise ModelError(
            f"{text}: attribute {attribute.name!r} has the value {wrong[0]}; expected {minimum} to {_LARGEST}",
            node=node.name,
            attribute=attribute.name,
            found=wrong[0],
        )


def _check_element_type(attribute: onnx.AttributeProto, text: str, node: onnx.NodeProto) -> None:
    """Require the number of an element type of the installed onnx."""
    kinds = onnx.TensorProto
    says_nothing = attribute.i == kinds.UNDEFINED and attribute.name == "output_dtype"  # its default
    if attribute.i not in kinds.DataType.values() or (attribute.i == kinds.UNDEFINED and not says_nothing):
        raise ModelError(
            f"{text}: attribute {attribute.name!r} has the value {attribute.i}, which is no element type",
            node=node.name,
            attribute=attribute.name,
            found=attribute.i,
        )


def _check_equation(attribute: onnx.AttributeProto, text: str, node: onnx.NodeProto) -> None:
    """Require at most one ellipsis in each term of an Einsum; onnx's shape inference never ends at a second one."""
    terms = attribute.s.decode(errors="replace").replace("->", ",").split(",")
    wrong = [term for term in terms if "." in term.replace("...", "", 1)]
    if wrong:
        raise ModelError(
            f"{text}: the term {wrong[0][:80]!r} of the equation has dots beside one ellipsis (...), which a term has at most once",
            node=node.name,
            attribute=attribute.name,
        )


def _type_name(value: int) -> str:
    types = onnx.AttributeProto.AttributeType
    return types.Name(value) if value in types.values() else str(value)
