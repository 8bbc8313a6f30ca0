"""Infer element types that ONNX's shape inference leaves out: outputs with the type variable of an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..utils.optional import onnx
from .operators import standard_opset

__all__ = ["add_types", "input_of_same_type", "missing_types"]


def input_of_same_type(schema: onnx.defs.OpSchema, place: int, is_known: Sequence[bool]) -> int | None:
    """The first input of known type that has the output's type variable in the operator's schema; ``place`` is the output's index."""
    kind = schema.outputs[min(place, len(schema.outputs) - 1)].type_str
    for index, has_type in enumerate(is_known):
        if has_type and schema.inputs[min(index, len(schema.inputs) - 1)].type_str == kind:
            return index
    return None


def missing_types(inferred: onnx.ModelProto) -> dict[str, int]:
    """Tensors of the main graph for which inference has found no type, and the types that they have."""
    graph, opset = inferred.graph, standard_opset(inferred)
    types = {info.name: info.type.tensor_type.elem_type for info in (*graph.input, *graph.value_info, *graph.output)}
    types.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    types.update((tensor.values.name, tensor.values.data_type) for tensor in graph.sparse_initializer)
    missing: dict[str, int] = {}
    for node in graph.node:
        places = [place for place, name in enumerate(node.output) if name and not types.get(name)]
        if not places or node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type, opset, ""):
            continue
        schema = onnx.defs.get_schema(node.op_type, opset, "")
        for place in places:
            source = input_of_same_type(schema, place, [bool(types.get(name)) for name in node.input])
            if source is not None:
                types[node.output[place]] = missing[node.output[place]] = types[node.input[source]]
    return missing


def add_types(model: onnx.ModelProto, missing: Mapping[str, int]) -> None:
    """Write missing element types of tensors of the main graph into a model."""
    outputs = {info.name: info for info in model.graph.output}
    for name, kind in missing.items():
        info = outputs[name] if name in outputs else model.graph.value_info.add(name=name)
        info.type.tensor_type.elem_type = kind
