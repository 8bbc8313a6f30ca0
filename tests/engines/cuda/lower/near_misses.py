"""Models that differ from another in one place: what a rewrite recognizes must not be recognized in them unless it is the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

_AUTO = [("auto_pad", kind) for kind in ("SAME_UPPER", "SAME_LOWER", "VALID")]
ADDED: dict[str, list[tuple[str, Any]]] = {
    "AveragePool": [*_AUTO, ("ceil_mode", 1), ("count_include_pad", 1)],
    "Conv": _AUTO,
    "ConvTranspose": [*_AUTO, ("output_shape", [9, 9])],
    "MaxPool": [*_AUTO, ("ceil_mode", 1), ("storage_order", 1)],
    "Gelu": [("approximate", "tanh")],
    "DequantizeLinear": [("axis", 0)],
    "Softmax": [("axis", 1)],
}
"""Attributes that a node may have too."""


def near_misses(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Each change of one place, and the model with it. Not all are valid, and some compute the same.

    Numbers are others, inputs of a node are exchanged or replaced by another value of the same type and dims, attributes have one
    number one more or less, or in another order, or there are more, and each value between is an output of the model too.
    """
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    types = {info.name: info.type for info in (*inferred.input, *inferred.value_info, *inferred.output)}
    for index, tensor in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        for what, other in (("doubled", array * 2 + 1), ("reversed", array.ravel()[::-1].reshape(array.shape))):
            if array.dtype.kind == "f" and array.size and not np.array_equal(array, other):
                with_other = _copy(model)
                with_other.graph.initializer[index].CopyFrom(
                    numpy_helper.from_array(np.array(other, array.dtype), tensor.name)
                )
                yield f"{tensor.name} {what}", with_other
    known = [info.name for info in model.graph.input]
    outputs = {info.name for info in model.graph.output}
    for index, node in enumerate(model.graph.node):
        for place, name in enumerate(node.input):
            for other in (each for each in known if name in types and each != name and _same(types[each], types[name])):
                with_other = _copy(model)
                with_other.graph.node[index].input[place] = other
                yield f"{node.name}: {other} for {name}", with_other
        if len(node.input) == 2:
            swapped = _copy(model)
            swapped.graph.node[index].input[:] = node.input[::-1]
            yield f"{node.name}: inputs exchanged", swapped
        for place, attribute in enumerate(node.attribute):
            value = helper.get_attribute_value(attribute)
            for other in _other_values(value):
                with_other = _copy(model)
                with_other.graph.node[index].attribute[place].CopyFrom(helper.make_attribute(attribute.name, other))
                yield f"{node.name}: {attribute.name} = {other}", with_other
        for name, value in ADDED.get(node.op_type, ()):
            names = {attribute.name for attribute in node.attribute}
            if name not in names and not (name == "auto_pad" and "pads" in names):
                with_more = _copy(model)
                with_more.graph.node[index].attribute.append(helper.make_attribute(name, value))
                yield f"{node.name}: {name} = {value}", with_more
        for name in node.output:
            if name and name in types and name not in outputs:
                more = _copy(model)
                more.graph.output.append(helper.make_value_info(name, types[name]))
                yield f"{name} is an output", more
        known += [name for name in node.output if name in types]


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


def _same(one: onnx.TypeProto, other: onnx.TypeProto) -> bool:
    return one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def _other_values(value: Any) -> list[Any]:
    if isinstance(value, int):
        return [value - 1, value + 1]
    if isinstance(value, float):
        return [value * 2 + 0.5]
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        swaps = [[*value[:i], value[i + 1], value[i], *value[i + 2 :]] for i in range(len(value) - 1)]
        more = [[*value[:i], value[i] + 1, *value[i + 1 :]] for i in range(len(value))]
        return [other for other in swaps if other != value] + more
    return []
