"""Standard operators that ONNX defines by others: their definitions, and graphs put in the place of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from ..model.ir import names_in, unused_name
from ..model.proto import node_name
from ..utils.optional import require
from ..validation.dataflow import walk
from ..validation.operators import standard_opset

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["definition", "splice"]


def definition(node: ir.Node, version: int) -> ir.Graph | None:
    """How ONNX writes a node with other operators; None for operators that it does not define so.

    Args:
        node: Of ONNX's own domain, with the types of its inputs.
        version: Of the opset; what the definition uses must mean the same there.

    Returns:
        A graph with an input for each of the node's, those that are left out included, and an output for each output.
    """
    onnx, onnx_ir = require("onnx", extra="onnx"), require("onnx_ir", extra="onnx")
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return None
    proto = onnx_ir.serde.serialize_node(node)
    function = _body(onnx, onnx_ir, schema, proto, node, version)
    if function is None or not _means_the_same(onnx, function, version):
        return None
    defaults = [attribute.default_value for attribute in schema.attributes.values() if attribute.default_value.name]
    given = {attribute.name: attribute for attribute in (*defaults, *function.attribute_proto, *proto.attribute)}
    present = {name for name, value in zip(function.input, node.inputs, strict=False) if value is not None}
    _bind(function.node, given, set(function.input) - present)
    for item in walk(function.node):  # errors are to name what the model has
        item.name = f"{node_name(node)}.{item.name or item.op_type}"
    graph = onnx.helper.make_graph(
        function.node,
        node.op_type,
        [onnx.ValueInfoProto(name=name) for name in function.input],
        [onnx.ValueInfoProto(name=name) for name in function.output],
    )
    return onnx_ir.from_proto(graph)  # type: ignore[no-any-return]


def splice(graph: ir.Graph, node: ir.Node, inner: ir.Graph, inputs: Sequence[ir.Value | None]) -> None:
    """Put a graph in the place of a node.

    Args:
        graph: The node's.
        node: Goes.
        inner: Is empty afterwards.
        inputs: What stands for the inner graph's inputs.
    """
    if any(value.name for value in node.outputs[len(inner.outputs) :]):
        raise ModelError(
            f"node {node.name or node.outputs[0].name!r} ({node.op_type}): ONNX defines it with others, which for these attributes give "
            f"{len(inner.outputs)} outputs of {len(node.outputs)}.\nDo: export the model again",
            node=node.name or "",
        )
    taken = names_in(graph)
    for value, given in zip(inner.inputs, inputs, strict=False):
        if given is not None:
            value.replace_all_uses_with(given, replace_graph_outputs=True)
    results = list(inner.outputs)
    inner.outputs.clear()  # first, since a branch may give a constant of its own
    for value in list(inner.initializers.values()):
        del inner.initializers[str(value.name)]
        value.name = unused_name(str(value.name), taken)
        graph.register_initializer(value)
    inside = list(inner)
    inner.remove(inside)
    for each in inside:
        for value in each.outputs:
            value.name = unused_name(value.name, taken) if value.name else value.name
        each.name = unused_name(each.name or f"{node.name or node.op_type}.{each.op_type}", taken)
    for index, (value, given) in enumerate(zip(node.outputs, results, strict=False)):
        if value.is_graph_output():  # keeps its name
            identity = require("onnx_ir", extra="onnx").node("Identity", [given])
            inside.append(identity)
            results[index] = identity.outputs[0]
    graph.insert_after(node, inside)
    for value, given in zip(node.outputs, results, strict=False):
        name, is_output = value.name, value.is_graph_output()
        if is_output:
            given.shape, given.type = value.shape, value.type
        value.replace_all_uses_with(given, replace_graph_outputs=True)
        if is_output:
            value.name, given.name = None, name
    graph.remove(node, safe=True)


def _body(onnx: Any, onnx_ir: Any, schema: Any, proto: onnx.NodeProto, node: ir.Node, version: int) -> Any:
    function = onnx.FunctionProto()
    if schema.has_function:
        function.CopyFrom(schema.function_body)
        return function
    if not schema.has_context_dependent_function:
        return None
    types = [
        (onnx.TypeProto() if value is None else onnx_ir.serde.serialize_value(value).type).SerializeToString()
        for value in node.inputs
    ]
    usable = [each for each in schema.context_dependent_function_opset_versions if each <= version]
    if not usable:
        return None
    text = schema.get_context_dependent_function_with_opset_version(max(usable), proto.SerializeToString(), types)
    function.ParseFromString(text)
    return function if function.node else None


def _means_the_same(onnx: Any, function: onnx.FunctionProto, version: int) -> bool:
    """Whether the operators of a definition did not change between its opset and the model's."""
    own = standard_opset(function) or version

    def since(op_type: str, opset: int) -> int:
        return int(onnx.defs.get_schema(op_type, opset, "").since_version)

    return all(
        node.op_type not in _MOVED or since(node.op_type, own) == since(node.op_type, version) for node in function.node
    )


_MOVED = ("Clip", "Dropout", "Pad", "ReduceSum", "Slice", "Split", "Squeeze", "TopK", "Unsqueeze", "Upsample")
"""Operators whose attributes became inputs at some opset; later changes of others only added types."""


def _bind(nodes: Any, given: Mapping[str, onnx.AttributeProto], missing: set[str]) -> None:
    """Put attributes and missing inputs in the place of what stands for them."""
    for node in nodes:
        for index, name in enumerate(node.input):
            if name in missing:
                node.input[index] = ""
        attributes = list(node.attribute)
        del node.attribute[:]
        for attribute in attributes:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in given:
                    bound = node.attribute.add()
                    bound.CopyFrom(given[attribute.ref_attr_name])
                    bound.name = attribute.name
                continue
            _bind(attribute.g.node, given, missing)
            node.attribute.append(attribute)
