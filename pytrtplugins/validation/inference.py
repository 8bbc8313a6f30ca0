"""Shape inference of the installed onnx, prevented from taking the memory that a model claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from ..utils.optional import require
from ..utils.repeated import keep_items
from .dataflow import bodies
from .known_dims import HIDDEN, claim_dims, correct_dims, wrong_dims
from .pooling import rounded_down, without_claims, wrong_pools
from .untyped import add_types, missing_types

if TYPE_CHECKING:
    import onnx

__all__ = ["infer", "infer_node", "plainly_inferred"]

_LONGEST_FOLLOWED = 1 << 16
"""Elements of a 1-D tensor whose values are followed: onnx takes about 140 bytes for each, whether they are known or not."""
_MAKERS = frozenset({"ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Reshape", "Resize", "Tile", "Upsample"})
"""Operators whose results may be longer than all that they read. It is no trait, since checks of models import nothing of `model`."""
_MAX_TEXT = 1500
_NO_OPSET = re.compile(r"No opset import for domain (\S+) optype")


def infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what ONNX's rules say of dims and types; values of shapes are followed where no tensor is too long for that.

    It is to be of sound structure, and without its large weights.

    Raises:
        ModelError: shapes contradict each other.
    """
    inferred = plainly_inferred(model)
    if missing := missing_types(inferred):
        model = _copied(model)
        add_types(model, missing)
        inferred = plainly_inferred(model)
    exact: dict[int, onnx.NodeProto] = {}
    while True:
        replaced = wrong_pools(inferred)
        dims = {} if replaced else wrong_dims(inferred)
        replaced.update((index, _hidden(inferred.graph.node[index])) for index in dims)
        if not replaced:
            break
        model = _copied(model) if not exact else model
        for index, node in replaced.items():
            exact[index] = inferred.graph.node[index]
            model.graph.node[index].CopyFrom(node)
        without_claims(model, replaced.values())
        claim_dims(model, inferred, dims.values())
        inferred = plainly_inferred(model)
    for index, node in exact.items():
        inferred.graph.node[index].CopyFrom(node)
    keep_items(inferred.opset_import, lambda item: item.domain != HIDDEN)
    return inferred


def infer_node(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], data: Mapping[str, onnx.TensorProto], version: int
) -> dict[str, onnx.TypeProto]:
    """What ONNX's rules say of the outputs of one node.

    Args:
        node: The node; it is not changed.
        types: Types of what it reads.
        data: Values of what it reads, as far as they are known.
        version: The opset of its domain.

    Raises:
        Exception: of onnx's own types; it has no such operator, or what the node reads does not fit.
    """
    onnx = require("onnx", extra="onnx")
    domain = "" if node.domain == "ai.onnx" else node.domain
    schema, opsets = onnx.defs.get_schema(node.op_type, version, domain), [onnx.helper.make_opsetid(domain, version)]
    rounded = rounded_down(node, types)
    outputs = onnx.shape_inference.infer_node_outputs(schema, rounded, types, data, opset_imports=opsets)
    correct_dims(node, types, data, outputs)
    return outputs  # type: ignore[no-any-return]


def _hidden(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node that inference passes over."""
    copy = type(node)()
    copy.CopyFrom(node)
    copy.domain = HIDDEN
    return copy


def plainly_inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """What ONNX's own inference says, with its errors."""
    plain = _infer(model, follow_values=False)
    return _infer(plain, follow_values=True) if _can_be_followed(plain) else plain


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = type(model)()
    copy.CopyFrom(model)
    return copy


def _infer(model: onnx.ModelProto, *, follow_values: bool) -> onnx.ModelProto:
    inference = require("onnx.shape_inference", extra="onnx", feature="working on ONNX models")
    try:
        return inference.infer_shapes(model, strict_mode=False, data_prop=follow_values)  # type: ignore[no-any-return]
    except Exception as error:  # the C++ side raises types of its own
        text = str(error)[:_MAX_TEXT]
        found = _NO_OPSET.search(text)
        advice = f"\nDo: model.opset_import.append(onnx.helper.make_opsetid({found[1]!r}, 1))" if found else ""
        raise ModelError(f"shapes cannot be inferred: {text}{advice}") from error


def _can_be_followed(model: onnx.ModelProto) -> bool:
    """Whether no 1-D tensor is long, and no body or function makes one whose length is not known yet."""
    graph = model.graph
    if any(_is_long(info) for info in (*graph.input, *graph.output, *graph.value_info)):
        return False
    inner: list[Any] = [body for node in graph.node for body in bodies(node)]
    inner += model.functions
    while inner:
        part = inner.pop()
        if any(node.op_type in _MAKERS for node in part.node) or any(_is_long(info) for info in part.value_info):
            return False
        inner += [body for node in part.node for body in bodies(node)]
    return True


def _is_long(info: onnx.ValueInfoProto) -> bool:
    dims = info.type.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > _LONGEST_FOLLOWED
