"""Write constants in the form that every library reads correctly: dense, and as raw data where typed data are misread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..errors import ModelError
from ..utils.optional import onnx
from ..validation.dataflow import walk_graphs
from ..validation.limits import MAX_COMPUTED_BYTES, size_text
from ..validation.tensors import is_external, packed_bytes
from .proto import copy_of

__all__ = ["with_dense_constants"]

_MISREAD = (12, 16)
"""UINT32 and BFLOAT16 in onnx.TensorProto.DataType, whose typed data OpenVINO 2026 reads as other numbers."""


def with_dense_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """A validated model, or itself, with dense instead of sparse constants, and raw data instead of typed data that libraries misread.

    Raises:
        ModelError: all sparse constants together need more than `MAX_COMPUTED_BYTES`; or a place lies outside the dims.
    """
    graphs = _graphs(model)
    attributes = _constant_attributes(model, graphs)
    sparse = _sparse_tensors(graphs, attributes)
    if not sparse and not any(map(_is_misread, _tensors(graphs, attributes))):
        return model
    _check_size(sparse)
    dense = copy_of(model)
    graphs = _graphs(dense)
    attributes = _constant_attributes(dense, graphs)
    for tensor in _tensors(graphs, attributes):
        if _is_misread(tensor):
            _set_raw_data(tensor)
    for attribute in attributes:
        if attribute.HasField("sparse_tensor"):
            attribute.t.CopyFrom(_to_dense(attribute.sparse_tensor))
            attribute.ClearField("sparse_tensor")
            attribute.name, attribute.type = "value", attribute.TENSOR
    for graph in graphs:
        graph.initializer.extend(map(_to_dense, graph.sparse_initializer))
        del graph.sparse_initializer[:]
    return dense


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The main graph, and all that are inside nodes of it or of functions."""
    return [model.graph, *(graph for owner in (model.graph, *model.functions) for graph in walk_graphs(owner.node))]


def _constant_attributes(model: onnx.ModelProto, graphs: Iterable[onnx.GraphProto]) -> list[onnx.AttributeProto]:
    """Attributes of nodes that give constants, in a model's graphs and functions."""
    inner = (node for function in model.functions for node in function.node)
    nodes = (node for graph in graphs for node in graph.node)
    constants = (node for node in (*nodes, *inner) if node.op_type in ("Constant", "ConstantOfShape"))
    return [attribute for node in constants for attribute in node.attribute]


def _tensors(
    graphs: Iterable[onnx.GraphProto], attributes: Iterable[onnx.AttributeProto]
) -> Iterator[onnx.TensorProto]:
    for graph in graphs:
        yield from graph.initializer
    for attribute in attributes:
        if attribute.HasField("t"):
            yield attribute.t


def _is_misread(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in _MISREAD and not tensor.HasField("raw_data") and not is_external(tensor)


def _set_raw_data(tensor: onnx.TensorProto) -> None:
    raw = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor)).raw_data
    tensor.ClearField("int32_data")
    tensor.ClearField("uint64_data")
    tensor.raw_data = raw


def _sparse_tensors(
    graphs: Iterable[onnx.GraphProto], attributes: Iterable[onnx.AttributeProto]
) -> list[onnx.SparseTensorProto]:
    tensors = [tensor for graph in graphs for tensor in graph.sparse_initializer]
    return tensors + [item.sparse_tensor for item in attributes if item.HasField("sparse_tensor")]


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
    values: Any = onnx.numpy_helper.to_array(sparse.values)
    indices: Any = onnx.numpy_helper.to_array(sparse.indices)
    dims = tuple(sparse.dims)
    sizes = np.array(dims if indices.ndim == 2 else math.prod(dims))
    if indices.size and ((indices < 0) | (indices >= sizes)).any():
        raise ModelError(
            f"sparse constant {sparse.values.name!r} of dims {dims} has a value outside of them.\nDo: export the model again",
            tensor=sparse.values.name,
        )
    array = np.zeros(dims, values.dtype)
    array[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dims)] = values
    return onnx.numpy_helper.from_array(array, sparse.values.name)
