"""Check nesting depth, number of nodes and texts of a model before anything else reads it."""

from __future__ import annotations

import functools
from typing import Any

from ..errors import ModelError
from ..utils.optional import onnx
from .dataflow import subgraphs
from .limits import MAX_DEPTH, MAX_NODES

__all__ = ["check_well_formed"]

_OF_TENSORS = ("name", "doc_string")  # other fields of a tensor hold its values, which are not copied for this


def check_well_formed(model: onnx.ModelProto) -> None:
    """Refuse deeply nested graphs, too many nodes, and texts that are not UTF-8; values of tensors are not read.

    Raises:
        ModelError: something else was found; protobuf gives texts that are not UTF-8 as bytes, which no reader of names expects.
    """
    _check_depth(model)
    _check_texts(model)


def _check_depth(model: onnx.ModelProto) -> None:
    waiting: list[tuple[Any, int]] = [(model.graph.node, 1), *((function.node, 1) for function in model.functions)]
    total = 0
    while waiting:
        nodes, depth = waiting.pop()
        total += len(nodes)
        if depth > MAX_DEPTH:
            raise ModelError(f"graphs are nested more than {MAX_DEPTH} deep", found=depth, limit=MAX_DEPTH)
        if total > MAX_NODES:
            raise ModelError(f"the model has more than {MAX_NODES:,} nodes", found=total, limit=MAX_NODES)
        waiting += [(body.node, depth + 1) for node in nodes for body in subgraphs(node)]


def _check_texts(model: onnx.ModelProto) -> None:
    waiting: list[Any] = [model]
    while waiting:
        message = waiting.pop()
        kind = message.DESCRIPTOR.name
        if kind == "TensorProto":
            for name in _OF_TENSORS:
                _check_text(getattr(message, name), name, kind)
            waiting += message.external_data
            continue
        for field, value in message.ListFields():
            holds = _content_kind(field)
            if holds == "message":
                waiting.append(value)
            elif holds == "messages":
                waiting += value
            elif holds == "texts":
                for text in (value,) if isinstance(value, (str, bytes)) else value:
                    _check_text(text, field.name, kind)


@functools.cache  # a model has many messages, of few kinds
def _content_kind(field: Any) -> str:
    """What a protobuf field holds, if it has to be checked: texts, messages or one message; else empty."""
    if field.cpp_type != field.CPPTYPE_MESSAGE:
        return "texts" if field.type == field.TYPE_STRING else ""
    repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    return "messages" if repeated else "message"  # protobuf has is_repeated since version 30


def _check_text(text: object, field: str, kind: str) -> None:
    if isinstance(text, bytes):
        raise ModelError(f"{field} of a {kind} is not text: {text[:40]!r} is not UTF-8")
