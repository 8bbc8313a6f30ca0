"""Texts of a model: protobuf gives those that are not UTF-8 as bytes, which nobody who reads a name expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["check_texts"]

_OF_TENSORS = ("name", "doc_string")  # other fields of a tensor hold its values, which are not copied for this


def check_texts(model: onnx.ModelProto) -> None:
    """Require that every text of the model is UTF-8; values of tensors are not looked at."""
    waiting: list[Any] = [model]
    while waiting:
        message = waiting.pop()
        kind = message.DESCRIPTOR.name
        if kind == "TensorProto":
            for name in _OF_TENSORS:
                _check(getattr(message, name), name, kind)
            waiting += message.external_data
            continue
        for field, value in message.ListFields():
            if field.cpp_type == field.CPPTYPE_MESSAGE:
                waiting += [value] if hasattr(value, "DESCRIPTOR") else value
            elif field.type == field.TYPE_STRING:
                for text in (value,) if isinstance(value, (str, bytes)) else value:
                    _check(text, field.name, kind)


def _check(text: object, field: str, kind: str) -> None:
    if isinstance(text, bytes):
        raise ModelError(f"{field} of a {kind} is no text: {text[:40]!r} is not UTF-8")
