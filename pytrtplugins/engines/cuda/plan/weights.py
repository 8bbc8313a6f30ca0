"""Models without their weights: all that is to be known of a network, small enough to be read at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ....utils.optional import require
from ..lower.rewrite import DOMAIN

if TYPE_CHECKING:
    import onnx

__all__ = ["WEIGHTS_LOCATION", "read_constants", "take_weights", "without_weights"]

WEIGHTS_LOCATION = "model.onnx"
"""Where the weights that were taken are, as ONNX says it; nobody looks there through ONNX."""
_LARGE = 1024
"""Bytes of a weight that `without_weights` leaves out."""


def take_weights(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]]:
    """Take the weights that only convolutions read out of a lowered model; their dims and types stay.

    Args:
        model: What `lower` gave; changed in place.

    Returns:
        The weights by name.
    """
    numpy_helper = require("onnx.numpy_helper", extra="onnx")
    weights, others = set[str](), {info.name for info in model.graph.output}
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            (weights if node.domain == DOMAIN and index == 1 else others).add(name)
    taken: dict[str, npt.NDArray[Any]] = {}
    for tensor in model.graph.initializer:
        if tensor.name in weights - others:
            taken[tensor.name] = numpy_helper.to_array(tensor)
            tensor.CopyFrom(_emptied(tensor))
    return taken


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model that leaves out the values of large weights; their names, dims and types stay."""
    copy = type(model)()
    for field, value in model.ListFields():
        if field.name != "graph":
            _set(copy, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _set(copy.graph, field.name, value)
    copy.graph.initializer.extend(
        _emptied(tensor) if len(tensor.raw_data) > _LARGE else tensor for tensor in model.graph.initializer
    )
    return copy


def read_constants(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]]:
    """The initializers of a model; in the place of weights that were taken, what no weight is: NaN, or -128."""
    helper, numpy_helper = require("onnx.helper", extra="onnx"), require("onnx.numpy_helper", extra="onnx")
    external = require("onnx", extra="onnx").TensorProto.EXTERNAL
    found: dict[str, npt.NDArray[Any]] = {}
    for tensor in model.graph.initializer:
        if tensor.data_location == external:
            kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
            none = np.nan if kind.kind == "f" else np.iinfo(kind).min
            found[tensor.name] = np.broadcast_to(np.array(none, kind), tuple(tensor.dims))
        else:
            found[tensor.name] = numpy_helper.to_array(tensor)
    return found


def _emptied(tensor: onnx.TensorProto) -> onnx.TensorProto:
    left = type(tensor)(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    left.data_location = left.EXTERNAL
    left.external_data.add(key="location", value=WEIGHTS_LOCATION)
    return left


def _set(message: Any, name: str, value: Any) -> None:
    if isinstance(value, (str, int)):
        setattr(message, name, value)
    else:
        getattr(message, name).MergeFrom(value)
