"""Write constants in the form that every library reads correctly: dense, and as raw data where typed data are misread."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError
from ..utils.optional import require
from ..validation.dataflow import walk_graphs
from ..validation.limits import MAX_COMPUTED_BYTES, size_text
from ..validation.tensors import is_external, packed_bytes
from .proto import copy_of

if TYPE_CHECKING:
    import onnx

__all__ = ["with_dense_constants"]

_FEATURE = "working on ONNX models"
_MISREAD = (12, 16)
"""UINT32 and BFLOAT16 in onnx.TensorProto.DataType, whose typed data OpenVINO 2026 reads as other numbers."""


def with_dense_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with dense instead of sparse constants, and raw data instead of typed data that libraries misread.

    Args:
        model: A model that was validated; it is not changed.

    Returns:
        A new model, or this very model where it has no such constants.

    Raises:
        ModelError: all sparse constants together need more than `MAX_COMPUTED_BYTES`; or a place lies outside the dims.
    """
    if not _sparse_tensors(model) and not any(map(_is_misread, _tensors(model))):
        return model
    _check_size(_sparse_tensors(model))
    dense = copy_of(model)
    for tensor in _tensors(dense):
        if _is_misread(tensor):
            _set_raw_data(tensor)
    for attribute in _constant_attributes(dense):
        if attribute.HasField("sparse_tensor"):
            attribute.t.CopyFrom(_to_dense(attribute.sparse_tensor))
            attribute.ClearField("sparse_tensor")
            attribute.name, attribute.type = "value", attribute.TENSOR
    for graph in _graphs(dense):
        graph.initializer.extend(map(_to_dense, graph.sparse_initializer))
        del graph.sparse_initializer[:]
    return dense


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield model.graph
    for owner in (model.graph, *model.functions):
        yield from walk_graphs(owner.node)


def _constant_attributes(model: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    for nodes in (*(graph.node for graph in _graphs(model)), *(function.node for function in model.functions)):
        for node in nodes:
            if node.op_type in ("Constant", "ConstantOfShape"):
                yield from node.attribute


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in _graphs(model):
        yield from graph.initializer
    for attribute in _constant_attributes(model):
        if attribute.HasField("t"):
            yield attribute.t


def _is_misread(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in _MISREAD and not tensor.HasField("raw_data") and not is_external(tensor)


def _set_raw_data(tensor: onnx.TensorProto) -> None:
    helper = require("onnx.numpy_helper", extra="onnx", feature=_FEATURE)
    raw = helper.from_array(helper.to_array(tensor)).raw_data
    tensor.ClearField("int32_data")
    tensor.ClearField("uint64_data")
    tensor.raw_data = raw


def _sparse_tensors(model: onnx.ModelProto) -> list[onnx.SparseTensorProto]:
    tensors = [tensor for graph in _graphs(model) for tensor in graph.sparse_initializer]
    return tensors + [item.sparse_tensor for item in _constant_attributes(model) if item.HasField("sparse_tensor")]


def _check_size(sparse: list[onnx.SparseTensorProto]) -> None:
    size = sum(packed_bytes(math.prod(tensor.dims), tensor.values.data_type) for tensor in sparse)
    if size > MAX_COMPUTED_BYTES:
        raise ModelError(
            f"the sparse constants of the model need {size_text(size)} where they are written out; the limit is "
            f"{size_text(MAX_COMPUTED_BYTES)}.\nDo: export the model with smaller constants",
            found=size,
            limit=MAX_COMPUTED_BYTES,
        )


def _to_dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    helper = require("onnx.numpy_helper", extra="onnx", feature=_FEATURE)
    values: Any = helper.to_array(sparse.values)
    indices: Any = helper.to_array(sparse.indices)
    dims = tuple(sparse.dims)
    sizes = np.array(dims if indices.ndim == 2 else math.prod(dims))
    if indices.size and ((indices < 0) | (indices >= sizes)).any():
        raise ModelError(
            f"sparse constant {sparse.values.name!r} of dims {dims} has a value outside of them.\nDo: export the model again",
            tensor=sparse.values.name,
        )
    array = np.zeros(dims, values.dtype)
    array[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dims)] = values
    return helper.from_array(array, sparse.values.name)  # type: ignore[no-any-return]
