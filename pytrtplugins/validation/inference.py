"""Run ONNX's shape inference without allocating the memory that a model claims."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from ..utils.optional import onnx
from ..utils.repeated import keep_items
from .dataflow import subgraphs
from .known_dims import HIDDEN, correct_dims, declare_dims, wrong_dims
from .operators import standard_domain
from .pooling import correct_pools, remove_declared_dims, without_ceil_mode
from .untyped import add_types, missing_types

__all__ = ["infer", "infer_node", "infer_unchanged"]

_LONGEST_FOLLOWED = 1 << 16
"""Elements of a 1-D tensor whose values are followed: onnx takes about 140 bytes for each, whether they are known or not."""
_MAKERS = frozenset({"ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Reshape", "Resize", "Tile", "Upsample"})
"""Operators whose results may be longer than all that they read. It is no trait, since checks of models import nothing of `model`."""
_TABLE = 2
"""Axes of a table, which is no shape."""
_MAX_TEXT = 1500
_NO_OPSET = re.compile(r"No opset import for domain (\S+) optype")


def infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inferred dims and types; values of shape tensors are propagated unless a tensor is too long for that.

    It is to be of sound structure, and without its large weights.

    Raises:
        ModelError: shapes contradict each other.
    """
    inferred = infer_unchanged(model)
    if missing := missing_types(inferred):
        model = _copy_model(model)
        add_types(model, missing)
        inferred = infer_unchanged(model)
    exact: dict[int, onnx.NodeProto] = {}
    while True:
        replaced = correct_pools(inferred)
        dims = {} if replaced else wrong_dims(inferred)
        replaced.update((index, _hidden_copy(inferred.graph.node[index])) for index in dims)
        if not replaced:
            break
        model = _copy_model(model) if not exact else model
        for index, node in replaced.items():
            exact[index] = inferred.graph.node[index]
            model.graph.node[index].CopyFrom(node)
        remove_declared_dims(model, replaced.values())
        declare_dims(model, inferred, dims.values())
        inferred = infer_unchanged(model)
    for index, node in exact.items():
        inferred.graph.node[index].CopyFrom(node)
    keep_items(inferred.opset_import, lambda item: item.domain != HIDDEN)
    return inferred


def infer_node(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], data: Mapping[str, onnx.TensorProto], version: int
) -> dict[str, onnx.TypeProto]:
    """Infer types and dims of one node's outputs by ONNX's rules; ``data`` are values of what it reads, as far as they are known.

    Raises:
        Exception: of onnx's own types; it has no such operator, or what the node reads does not fit.
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    schema, opsets = onnx.defs.get_schema(node.op_type, version, domain), [onnx.helper.make_opsetid(domain, version)]
    rounded = without_ceil_mode(node, types)
    outputs = onnx.shape_inference.infer_node_outputs(schema, rounded, dict(types), dict(data), opset_imports=opsets)
    correct_dims(node, types, data, outputs)
    return outputs


def _hidden_copy(node: onnx.NodeProto) -> onnx.NodeProto:
    """A copy of a node in a domain that inference skips."""
    copy = type(node)()
    copy.CopyFrom(node)
    copy.domain = HIDDEN
    return copy


def infer_unchanged(model: onnx.ModelProto) -> onnx.ModelProto:
    """Run ONNX's own inference, with its errors: once more with values, where there may be values and none of them is long."""
    plain = _infer(model, follow_values=False)
    return _infer(plain, follow_values=True) if _may_have_values(plain) and _can_propagate_values(plain) else plain


def _copy_model(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = type(model)()
    copy.CopyFrom(model)
    return copy


def _infer(model: onnx.ModelProto, *, follow_values: bool) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=follow_values)
    except Exception as error:  # the C++ side raises types of its own
        text = str(error)[:_MAX_TEXT]
        match = _NO_OPSET.search(text)
        advice = f"\nDo: model.opset_import.append(onnx.helper.make_opsetid({match[1]!r}, 1))" if match else ""
        raise ModelError(f"shapes cannot be inferred: {text}{advice}") from error


def _may_have_values(model: onnx.ModelProto) -> bool:
    """Whether a node gives one number or a row of them by an operator that ONNX's inference computes; shapes are such rows."""
    standard = {item.version for item in model.opset_import if not standard_domain(item.domain)}
    if len(standard) != 1 or model.functions:
        return True
    (version,), graph = standard, model.graph
    infos = {info.name: info.type.tensor_type for info in (*graph.value_info, *graph.output)}
    for node in graph.node:
        if subgraphs(node):
            return True
        if not standard_domain(node.domain) and _computes_values(node.op_type, version):
            kind = infos.get(node.output[0]) if node.output else None
            if kind is None or not kind.HasField("shape") or len(kind.shape.dim) < _TABLE:
                return True
    return False


@functools.lru_cache(1024)
def _computes_values(op_type: str, version: int) -> bool:
    return (
        not onnx.defs.has(op_type, version, "")
        or onnx.defs.get_schema(op_type, version, "").has_data_propagation_function
    )


def _can_propagate_values(model: onnx.ModelProto) -> bool:
    """Whether no 1-D tensor is long, and no subgraph or function makes one of unknown length."""
    graph = model.graph
    if any(_is_long(info) for info in (*graph.input, *graph.output, *graph.value_info)):
        return False
    inner: list[Any] = [body for node in graph.node for body in subgraphs(node)]
    inner += model.functions
    while inner:
        part = inner.pop()
        if any(node.op_type in _MAKERS for node in part.node) or any(_is_long(info) for info in part.value_info):
            return False
        inner += [body for node in part.node for body in subgraphs(node)]
    return True


def _is_long(info: onnx.ValueInfoProto) -> bool:
    dims = info.type.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > _LONGEST_FOLLOWED
