"""Standard operators that ONNX defines as functions: their bodies, and replacing nodes by graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ModelError
from ..model.ir import names_in, unused_name
from ..model.proto import node_name
from ..utils.optional import ir, onnx
from ..validation.dataflow import walk

__all__ = ["definition", "splice"]


def definition(node: ir.Node, version: int) -> ir.Graph | None:
    """ONNX's function body of a node; None for operators without one.

    Args:
        node: Of ONNX's own domain, with the types of its inputs.
        version: Of the opset, in which the body's nodes must be valid.

    Returns:
        A graph with an input for each of the node's, those that are left out included, and an output for each output.
    """
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return None
    proto = ir.serde.serialize_node(node)
    function = _function_body(schema, proto, node, version)
    if function is None:
        return None
    defaults = [attribute.default_value for attribute in schema.attributes.values() if attribute.default_value.name]
    attributes = {attribute.name: attribute for attribute in (*defaults, *function.attribute_proto, *proto.attribute)}
    present = {name for name, value in zip(function.input, node.inputs, strict=False) if value is not None}
    _bind(function.node, attributes, set(function.input) - present)
    for item in walk(function.node):  # errors are to name what the model has
        item.name = f"{node_name(node)}.{item.name or item.op_type}"
    graph = onnx.helper.make_graph(
        function.node,
        node.op_type,
        [onnx.ValueInfoProto(name=name) for name in function.input],
        [onnx.ValueInfoProto(name=name) for name in function.output],
    )
    return ir.serde.deserialize_graph(graph)


def splice(graph: ir.Graph, node: ir.Node, inner: ir.Graph, inputs: Sequence[ir.Value | None]) -> None:
    """Replace a node by a graph, which is empty afterwards; ``inputs`` stand for the graph's inputs."""
    if any(value.name for value in node.outputs[len(inner.outputs) :]):
        raise ModelError(
            f"node {node.name or node.outputs[0].name!r} ({node.op_type}): ONNX defines it with others, which for these attributes give "
            f"{len(inner.outputs)} outputs of {len(node.outputs)}.\nDo: export the model again",
            node=node.name or "",
        )
    used_names = names_in(graph)
    for value, source in zip(inner.inputs, inputs, strict=False):
        if source is not None:
            value.replace_all_uses_with(source, replace_graph_outputs=True)
    results = list(inner.outputs)
    inner.outputs.clear()  # first, since a branch may give a constant of its own
    for value in list(inner.initializers.values()):
        del inner.initializers[str(value.name)]
        value.name = unused_name(str(value.name), used_names)
        graph.register_initializer(value)
    inside = list(inner)
    inner.remove(inside)
    for inner_node in inside:
        for value in inner_node.outputs:
            value.name = unused_name(value.name, used_names) if value.name else value.name
        inner_node.name = unused_name(
            inner_node.name or f"{node.name or node.op_type}.{inner_node.op_type}", used_names
        )
    for index, (value, source) in enumerate(zip(node.outputs, results, strict=False)):
        if value.is_graph_output():  # keeps its name
            identity = ir.node("Identity", [source])
            inside.append(identity)
            results[index] = identity.outputs[0]
    graph.insert_after(node, inside)
    for value, source in zip(node.outputs, results, strict=False):
        name, is_output = value.name, value.is_graph_output()
        if is_output:
            source.shape, source.type = value.shape, value.type
        value.replace_all_uses_with(source, replace_graph_outputs=True)
        if is_output:
            value.name, source.name = None, name
    graph.remove(node, safe=True)


def _function_body(schema: Any, proto: onnx.NodeProto, node: ir.Node, version: int) -> Any:
    """ONNX's function body for a node in an opset; None if there is none that is valid there."""
    versions = schema.function_opset_versions or schema.context_dependent_function_opset_versions
    if not versions:
        return None
    body_version = max((opset for opset in versions if opset <= version), default=min(versions))
    if schema.has_function:
        text = schema.get_function_with_opset_version(body_version)
    else:
        types = [
            (onnx.TypeProto() if value is None else ir.serde.serialize_value(value).type).SerializeToString()
            for value in node.inputs
        ]
        text = schema.get_context_dependent_function_with_opset_version(body_version, proto.SerializeToString(), types)
    function = onnx.FunctionProto.FromString(text)
    return function if function.node and all(_is_valid(item, version) for item in walk(function.node)) else None


def _is_valid(node: onnx.NodeProto, version: int) -> bool:
    """Whether an opset has a node's operator, with its attributes and as many inputs: some attributes became inputs."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return False
    inputs_fit = schema.min_input <= len(node.input) <= schema.max_input
    return not schema.deprecated and inputs_fit and {item.name for item in node.attribute} <= {*schema.attributes}


def _bind(nodes: Any, values: Mapping[str, onnx.AttributeProto], missing: set[str]) -> None:
    """Replace references to attributes, and missing inputs, in a function body."""
    for node in nodes:
        for index, name in enumerate(node.input):
            if name in missing:
                node.input[index] = ""
        attributes = list(node.attribute)
        del node.attribute[:]
        for attribute in attributes:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in values:
                    bound = node.attribute.add()
                    bound.CopyFrom(values[attribute.ref_attr_name])
                    bound.name = attribute.name
                continue
            _bind(attribute.g.node, values, missing)
            node.attribute.append(attribute)
