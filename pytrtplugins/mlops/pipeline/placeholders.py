"""Substitute placeholders in texts of a pipeline: ``${size}``, ``${inputs}``, ``${outputs[0]}``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TypeAlias

from ...errors import PipelineError
from ...utils.declared import nearest
from ...utils.text_formats import shorten
from ...utils.yaml_scalars import WrittenNumber
from .record import Scalar

__all__ = ["Scope", "as_recorded", "fill_placeholders", "fill_words", "value_text"]

Scope: TypeAlias = Mapping[str, "Scalar | tuple[str, ...]"]
"""Values by the names that places have."""

_PLACE = re.compile(r"\$\$(?=\{)|\$\{([^{}]*)\}?")
_NAME = re.compile(r"([\w.-]+)(?:\[(\d{1,4})\])?")


def fill_placeholders(text: str, scope: Scope) -> str:
    """A text with its placeholders replaced by values; ``$${`` stands for ``${``.

    Raises:
        PipelineError: a place names nothing, or a list where one value is wanted.
    """
    return _PLACE.sub(lambda match: _text(match, scope), text)


def fill_words(text: str, scope: Scope) -> list[str]:
    """Replace placeholders in a word; a word that is one placeholder of a list becomes as many words.

    Raises:
        PipelineError: a place names nothing, or a list in the middle of a text.
    """
    match = _PLACE.fullmatch(text)
    if match and match[1] is not None and isinstance(value := _value(match, scope), tuple):
        return list(value)
    return [fill_placeholders(text, scope)]


def value_text(value: Scalar) -> str:
    """A value as text; a number as the user wrote it."""
    if isinstance(value, WrittenNumber):
        return value.text
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_recorded(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Values for JSON; a number is a text if JSON would write it differently from the user, such as ``3.10``."""
    return {
        name: value_text(value) if isinstance(value, (int, float)) and value_text(value) != json.dumps(value) else value
        for name, value in values.items()
    }


def _text(match: re.Match[str], scope: Scope) -> str:
    if match[1] is None:
        return "$"
    value = _value(match, scope)
    if isinstance(value, tuple):
        if len(value) == 1:
            return value[0]
        raise PipelineError(f"{match[0]} is a list of {len(value)}: let it stand alone, or write ${{{match[1]}[0]}}")
    return value_text(value)


def _value(match: re.Match[str], scope: Scope) -> Scalar | tuple[str, ...]:
    name = _NAME.fullmatch(match[1])
    if name is None or not match[0].endswith("}"):
        raise PipelineError(f"{shorten(match[0])}: expected ${{NAME}}")
    if name[1] not in scope:
        raise PipelineError(f"{match[0]}: there is no {name[1]}.{nearest(name[1], scope)}")
    value = scope[name[1]]
    if name[2] is None:
        return value
    if not isinstance(value, tuple) or int(name[2]) >= len(value):
        raise PipelineError(f"{match[0]}: {name[1]} has {len(value) if isinstance(value, tuple) else 'no'} items")
    return value[int(name[2])]
