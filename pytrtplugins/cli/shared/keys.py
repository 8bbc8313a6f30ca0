"""The keys of the JSON that commands print with ``--json``, with types and meanings, read from the classes of the results."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .results import Result

__all__ = ["Key", "keys", "result_types"]

_WORDS = {
    str: "text",
    Path: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Any: "any",
    type(None): "null",
}


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of an object.

    Attributes:
        path: Where it stands: ``engines[].name`` is a key of each object in the list ``engines``.
        type: What stands there.
        meaning: What it says.
    """

    path: str
    type: str
    meaning: str


def result_types(command: Any) -> tuple[type, ...]:
    """The classes of which a command's ``result`` may be."""
    hint = typing.get_type_hints(command.callback).get("return")
    several = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    return tuple(typing.get_args(member)[0] for member in several if typing.get_origin(member) is Result)


def keys(cls: type, path: str = "") -> Iterator[Key]:
    """The keys of a result, followed by those of nested objects."""
    meanings, hints = _meanings(cls), typing.get_type_hints(cls, localns=_deferred_classes())
    for field in dataclasses.fields(cls):
        yield Key(path + field.name, _text(hints[field.name]), meanings.get(field.name, ""))
        mark, inner = _inner(hints[field.name])
        if inner is not None:
            yield from keys(inner, f"{path}{field.name}{mark}.")


def _deferred_classes() -> dict[str, Any]:
    """Classes in annotations of results that their modules do not import at run time, by name."""
    from darknet2caffe.inspect import Row

    from ...engines import Arithmetic
    from ...engines.cuda.profile import StepTime

    return {"Arithmetic": Arithmetic, "Row": Row, "StepTime": StepTime}


def _inner(hint: Any) -> tuple[str, type | None]:
    """The class of objects that a value has in it, and what leads there: ``[]`` for a list, ``{}`` for an object of any keys."""
    if dataclasses.is_dataclass(hint):
        return "", hint  # type: ignore[return-value]
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    for argument in inside:
        mark, inner = _inner(argument)
        if inner is not None:
            return ("{}" if _is_mapping(origin) else "[]" if origin is tuple else "") + mark, inner
    return "", None


def _text(hint: Any) -> str:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return "object"
    if isinstance(hint, types.UnionType) or origin is typing.Union:
        return " or ".join(map(_text, inside))
    if _is_mapping(origin):
        return f"object of any keys, each with {_text(inside[1])}"
    if origin is typing.Literal:
        return " or ".join(f'"{literal}"' for literal in inside)
    if origin is tuple:
        return f"list of {_text(inside[0])}" if inside[1:] == (...,) else f"list: {', '.join(map(_text, inside))}"
    return _WORDS[hint]


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _meanings(cls: type) -> dict[str, str]:
    """The description of each attribute in a class's docstring."""
    _, _, section = re.sub(r"^Fields:$", "Attributes:", inspect.getdoc(cls) or "", flags=re.MULTILINE).partition(
        "Attributes:\n"
    )
    lines = re.split(r"\n(?=\S)", section)[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", lines, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
