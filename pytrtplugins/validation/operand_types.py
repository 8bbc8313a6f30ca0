"""Check that operands of one node have the same element type if the operator requires it: ONNX's inference does not."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from ..errors import ModelError
from ..utils.optional import onnx
from .dataflow import walk_with_facts
from .operators import node_text, standard_domain, standard_opset

__all__ = ["check_operand_types"]


def check_operand_types(model: onnx.ModelProto) -> None:
    """Check that inputs of a node that share a type variable of the schema have the same type, where the model has both."""
    opset = standard_opset(model)
    if not opset:
        return
    nodes = list(
        walk_with_facts(model.graph, lambda tensor: tensor.data_type, lambda declared: declared.elem_type or None)
    )
    plugins = {name: node for node, _ in nodes if standard_domain(node.domain) for name in node.output}
    for node, types in nodes:
        if not standard_domain(node.domain):
            _check_node(node, types, opset, plugins)


def _check_node(
    node: onnx.NodeProto, types: Mapping[str, int], opset: int, plugins: Mapping[str, onnx.NodeProto]
) -> None:
    if node.op_type.startswith(("BitShift", "Bitwise")):
        _check_bits(node, types)
    variables = _type_variables(node.op_type, opset)
    if not variables:
        return
    first: dict[str, str] = {}
    for place, name in enumerate(node.input):
        variable = variables[min(place, len(variables) - 1)]  # the last may be repeated
        if not (name and variable and name in types):
            continue
        other = first.setdefault(variable, name)
        if types[other] != types[name]:
            makers = [plugins[tensor] for tensor in (other, name) if tensor in plugins]
            do = (
                f"write output_dtypes and supports_format in {makers[0].op_type}"
                if makers
                else "put a Cast before one of them"
            )
            raise ModelError(
                f"{node_text(node)} reads {other[:200]!r}, which is {_type_name(types[other])}, and {name[:200]!r}, which is "
                f"{_type_name(types[name])}; {node.op_type} takes one type for both.\n{_cause(makers)}Do: {do}",
                node=node.name,
                tensor=name,
            )


def _check_bits(node: onnx.NodeProto, types: Mapping[str, int]) -> None:
    for name in node.input:
        if name in types and not _type_name(types[name]).startswith(("int", "uint")):
            raise ModelError(
                f"{node_text(node)} reads {name[:200]!r}, which is {_type_name(types[name])}; {node.op_type} takes whole numbers.\n"
                "Do: put a Cast before it",
                node=node.name,
                tensor=name,
            )


def _cause(plugins: Sequence[onnx.NodeProto]) -> str:
    if not plugins:
        return ""
    return f"Causes: {node_text(plugins[0])} is a plugin's, whose outputs have the type of its first input where it has no output_dtypes.\n"


@functools.lru_cache(4096)
def _type_variables(op_type: str, opset: int) -> tuple[str, ...]:
    """The name of each input's type, empty where it is like no other input's."""
    if not onnx.defs.has(op_type, opset, ""):
        return ()
    inputs = onnx.defs.get_schema(op_type, opset, "").inputs
    names = [item.type_str if item.is_homogeneous and "(" not in item.type_str else "" for item in inputs]
    variadic = bool(inputs) and inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    alone = {name for name in names if names.count(name) == 1} - ({names[-1]} if variadic else set())
    variables = tuple("" if name in alone else name for name in names)
    return variables if any(variables) else ()


def _type_name(kind: int) -> str:
    return "text" if kind == onnx.TensorProto.STRING else str(onnx.helper.tensor_dtype_to_np_dtype(kind).name)
