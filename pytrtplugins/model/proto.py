"""Helpers for ONNX protobuf messages: copies without weights, and their dims and types as `Dims` and `DType`."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import ModelError
from ..plugin.onnx_node import is_plugin_node
from ..tensor import AnyDims, Dim, Dims, DType, SymbolicDim
from ..utils.optional import ir, onnx
from ..utils.repeated import keep_items
from ..validation.dataflow import walk
from ..validation.tensors import LARGEST_SMALL

__all__ = [
    "NAMELESS_DIMS",
    "arrays_of",
    "copy_fields",
    "copy_of",
    "has_shape",
    "info_dims",
    "info_dtype",
    "infos_of",
    "node_name",
    "numpy_type",
    "tensors_of",
    "type_text",
    "weight_info",
    "with_data",
    "without_data",
]

NAMELESS_DIMS = frozenset({"?", "*", "-1", "None", "none", "unk", "unknown"})
"""Names of free dims that say nothing: two dims of such a name need not be equal."""

_ONNX_NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float6e2m3": "float6_e2m3fn",
    "float6e3m2": "float6_e3m2fn",
    "float4e2m1": "float4_e2m1fn",
}
"""Element types that ONNX calls otherwise than NumPy."""
_Message = TypeVar("_Message")


def copy_of(message: _Message) -> _Message:
    """Return a copy of a message."""
    twin: Any = type(message)()
    twin.CopyFrom(message)
    return twin  # type: ignore[no-any-return]


def copy_fields(source: Any, target: Any, *, without: Collection[str]) -> None:
    """Copy a message into an empty one, except some of its fields, which may be large and are not read."""
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
    """Return a copy with inputs in place of large initializers, for shape inference, whose limit is 2 GB."""
    graph, light = model.graph, type(model)()
    copy_fields(model, light, without={"graph", "functions"})
    copy_fields(graph, light.graph, without=("initializer",))
    if model.functions:
        plugins = {(node.domain, node.op_type) for node in walk(graph.node) if is_plugin_node(node)}
        light.functions.extend(item for item in model.functions if (item.domain, item.name) not in plugins)
    names = {info.name for info in graph.input}
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= LARGEST_SMALL:
            light.graph.initializer.append(tensor)
        elif tensor.name not in names:
            light.graph.input.append(weight_info(tensor))
    return light


def with_data(light: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the large initializers of ``model`` back into ``light``, made by `without_data`; return ``light``."""
    present = {tensor.name for tensor in light.graph.initializer}
    weights = [
        tensor
        for tensor in model.graph.initializer
        if tensor.name not in present and math.prod(tensor.dims) > LARGEST_SMALL
    ]
    names = {tensor.name for tensor in weights} - {info.name for info in model.graph.input}
    keep_items(light.graph.input, lambda info: info.name not in names)
    light.graph.initializer.extend(weights)
    return light


def infos_of(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the `ValueInfoProto` of each input, output and intermediate tensor of a graph, by name."""
    return {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}


def tensors_of(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the `ValueInfoProto` of each tensor of a graph, including constants, by name."""
    return {tensor.name: weight_info(tensor) for tensor in graph.initializer} | infos_of(graph)


@functools.cache
def numpy_type(kind: int) -> np.dtype[Any]:
    """Return NumPy's dtype of an ONNX element type, ``TensorProto.DataType``."""
    dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    return dtype


def arrays_of(tensors: Iterable[onnx.TensorProto]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of constants, by name."""
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in tensors}


def node_name(node: onnx.NodeProto | ir.Node) -> str:
    """Return a node's name, or its first output's name if it has none."""
    outputs: Any = node.output if hasattr(node, "output") else (value.name for value in node.outputs)
    return node.name or next(filter(None, outputs), "")


def weight_info(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    """Return the `ValueInfoProto` of a constant."""
    return onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


def info_dims(info: onnx.ValueInfoProto) -> Dims:
    """Return the dims of a `ValueInfoProto`; a free dim without a useful name gets the name ``TENSOR.AXIS``.

    `AnyDims` if it has no shape, so that the rank is unknown.
    """
    if not info.type.tensor_type.HasField("shape"):
        return AnyDims()

    def dim(index: int, proto: Any) -> Dim:
        if proto.HasField("dim_value") and proto.dim_value >= 0:
            return int(proto.dim_value)
        return SymbolicDim(proto.dim_param if _is_useful_name(proto.dim_param) else f"{info.name}.{index}")

    return tuple(dim(index, proto) for index, proto in enumerate(info.type.tensor_type.shape.dim))


def type_text(info: onnx.ValueInfoProto) -> str:
    """Return the type as text: an element type, a kind such as ``sequence``, or ``type unknown``."""
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return "type unknown" if kind is None else kind.removesuffix("_type").replace("_", " ")
    name = _element_type(info.type.tensor_type.elem_type)[1]
    return "type unknown" if name == "undefined" else _ONNX_NAMES.get(name, name)


def info_dtype(info: onnx.ValueInfoProto) -> DType:
    """Return the element type of an input or output of a model.

    Raises:
        ModelError: it is not a tensor, or one of a type that engines do not exchange, such as text.
    """
    kind = info.type.WhichOneof("value") or "tensor_type"
    if kind != "tensor_type":
        raise ModelError(
            f"tensor {info.name!r} is of the kind {kind.removesuffix('_type').replace('_', ' ')}; inputs and outputs of engines "
            "are tensors.\nDo: let the model take and give tensors",
            tensor=info.name,
        )
    dtype, name = _element_type(info.type.tensor_type.elem_type)
    if dtype is None:
        type_words = "of an unknown element type" if name == "undefined" else f"of the element type {name}"
        advice_of = {
            "undefined": "give it a type: info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT",
            "string": "let the model take and give numbers; text within it may stay",
        }
        raise ModelError(
            f"tensor {info.name!r} is {type_words}; inputs and outputs of engines are of {', '.join(DType)}.\n"
            f"Do: {advice_of.get(name, 'put a Cast to one of these types in the model')}",
            tensor=info.name,
            dtype=name,
        )
    return dtype


@functools.cache
def _element_type(kind: int) -> tuple[DType | None, str]:
    """Return the `DType` of an ONNX element type, None if engines do not exchange it, and ONNX's name of it."""
    name = onnx.TensorProto.DataType.Name(kind).lower()
    numpy_name = _ONNX_NAMES.get(name, name)
    return (DType(numpy_name) if numpy_name in list(DType) else None), name


def _is_useful_name(name: str) -> bool:
    return bool(name) and name not in NAMELESS_DIMS


def has_shape(infos: Mapping[str, onnx.ValueInfoProto], name: str) -> bool:
    """Return whether a tensor's `ValueInfoProto` is there and has a shape."""
    return name in infos and infos[name].type.tensor_type.HasField("shape")
