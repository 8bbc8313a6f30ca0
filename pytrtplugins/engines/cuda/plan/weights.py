"""Separate a model from its weights, so that it is small and quick to read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....model.ir import is_op
from ....model.proto import copy_fields
from ....utils.optional import ir, onnx
from ..lower.rewrite import DOMAIN

__all__ = ["WEIGHTS_LOCATION", "read_constants", "take_weights", "without_weights"]

WEIGHTS_LOCATION = "model.onnx"
"""Where the weights that were taken are, as ONNX says it; nobody looks there through ONNX."""
_LARGE = 1024
"""Bytes of a weight that `without_weights` leaves out."""


def take_weights(model: ir.Model) -> dict[str, npt.NDArray[Any]]:
    """Take the weights of convolutions out of a lowered model, if nothing else reads them; their dims and types stay.

    Args:
        model: What `lower` gave; changed in place.

    Returns:
        The weights of all convolutions by name, also those that stay in the model.
    """
    external: Any = ir.ExternalTensor
    weights: dict[str, npt.NDArray[Any]] = {}
    for name, value in model.graph.initializers.items():
        uses, tensor = value.uses(), value.const_value
        are_weights = [is_op(use.node, "Conv", DOMAIN) and use.idx == 1 for use in uses]
        if not any(are_weights) or tensor is None:
            continue
        weights[name] = tensor.numpy()
        if all(are_weights) and not value.is_graph_output():
            value.const_value = external(WEIGHTS_LOCATION, None, None, tensor.dtype, shape=tensor.shape, name=name)
    return weights


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model that leaves out the values of large weights; their names, dims and types stay."""
    copy = type(model)()
    copy_fields(model, copy, without=("graph",))
    copy_fields(model.graph, copy.graph, without=("initializer",))
    for tensor in model.graph.initializer:
        stripped = copy.graph.initializer.add()
        if len(tensor.raw_data) <= _LARGE:
            stripped.CopyFrom(tensor)
            continue
        stripped.name, stripped.data_type, stripped.data_location = tensor.name, tensor.data_type, stripped.EXTERNAL
        stripped.dims.extend(tensor.dims)
        stripped.external_data.add(key="location", value=WEIGHTS_LOCATION)
    return copy


def read_constants(model: ir.Model) -> dict[str, npt.NDArray[Any]]:
    """The initializers of a model by name; weights that were taken are replaced by NaN, or by the type's least integer."""
    external: Any = ir.ExternalTensor
    constants: dict[str, npt.NDArray[Any]] = {}
    for name, value in model.graph.initializers.items():
        tensor: Any = value.const_value
        if isinstance(tensor, external):
            kind = tensor.dtype.numpy()
            none = np.iinfo(kind).min if kind.kind in "iu" else np.nan
            constants[name] = np.broadcast_to(np.array(none, kind), tensor.shape.numpy())
        else:
            constants[name] = tensor.numpy()
    return constants
