"""Shape inference of the installed onnx, prevented from taking the memory that a model claims."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from ..utils.optional import require
from .dataflow import bodies
from .pooling import without_claims, wrong_pools

if TYPE_CHECKING:
    import onnx

__all__ = ["infer"]

_LONGEST_FOLLOWED = 1 << 16
"""Elements of a 1-D tensor whose values are followed: onnx takes about 140 bytes for each, whether they are known or not."""
_MAKERS = frozenset({"ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Reshape", "Resize", "Tile", "Upsample"})
_MAX_TEXT = 1500
_NO_OPSET = re.compile(r"No opset import for domain (\S+) optype")


def infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what ONNX's rules say of dims and types; values of shapes are followed where no tensor is too long for that.

    It is to be of sound structure, and without its large weights.

    Raises:
        ModelError: shapes contradict each other.
    """
    found = _inferred(model)
    exact: dict[int, onnx.NodeProto] = {}
    while wrong := wrong_pools(found):
        model = _copied(model) if not exact else model
        for index, replaced in wrong.items():
            exact[index] = found.graph.node[index]
            model.graph.node[index].CopyFrom(replaced)
        without_claims(model, wrong.values())
        found = _inferred(model)
    for index, node in exact.items():
        found.graph.node[index].CopyFrom(node)
    return found


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
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
