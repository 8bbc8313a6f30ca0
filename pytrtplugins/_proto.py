"""Messages of ONNX models: copies without the weights, and dims in this package's words."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ._optional import require
from .onnx_node import is_plugin_node
from .tensor import Dim, Dims, SymbolicDim

if TYPE_CHECKING:
    import onnx

__all__ = ["copy_fields", "copy_of", "has_shape", "info_dims", "weight_info", "without_data"]

_LARGEST_KEPT = 64  # elements; shape inference reads the values of shapes and axes, never of weights
_Message = TypeVar("_Message")


def copy_of(message: _Message) -> _Message:
    """A copy of a message."""
    twin: Any = type(message)()
    twin.CopyFrom(message)
    return twin  # type: ignore[no-any-return]


def copy_fields(source: Any, target: Any, *, without: Collection[str]) -> None:
    """Copy a message into an empty one, less some of its fields, which may be large and are never touched."""
    for field, value in source.ListFields():
        if field.name in without:
            continue
        repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
        if repeated:
            getattr(target, field.name).extend(value)
        elif field.message_type is not None:
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)


def without_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with large initializers as inputs: shape inference copies the model, and stops at 2 GB."""
    graph, light = model.graph, type(model)()
    copy_fields(model, light, without=("graph", "functions"))
    copy_fields(graph, light.graph, without=("initializer",))
    plugins = {(node.domain, node.op_type) for node in graph.node if is_plugin_node(node)}
    light.functions.extend(item for item in model.functions if (item.domain, item.name) not in plugins)
    names = {info.name for info in graph.input}
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= _LARGEST_KEPT:
            light.graph.initializer.append(tensor)
        elif tensor.name not in names:
            light.graph.input.append(weight_info(tensor))
    return light


def weight_info(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    """The description of a constant."""
    helper = require("onnx.helper", extra="onnx", feature="working on ONNX models")
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))  # type: ignore[no-any-return]


def info_dims(info: onnx.ValueInfoProto) -> Dims:
    """The dims that a description has; one without a value or a name is named after the tensor and its place."""

    def dim(index: int, proto: Any) -> Dim:
        if proto.HasField("dim_value"):
            return int(proto.dim_value)
        return SymbolicDim(proto.dim_param or f"{info.name}.{index}")

    return tuple(dim(index, proto) for index, proto in enumerate(info.type.tensor_type.shape.dim))


def has_shape(infos: Mapping[str, onnx.ValueInfoProto], name: str) -> bool:
    """Whether a tensor is described, with a shape."""
    return name in infos and infos[name].type.tensor_type.HasField("shape")
