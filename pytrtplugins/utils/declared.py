"""Compare values with the types that a class or a command declares for them."""

from __future__ import annotations

import difflib
import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError
from .numbers import FloatRange, IntRange
from .text_formats import shorten

__all__ = ["check_fields", "element_type", "field_limits", "field_types", "mismatch", "nearest"]

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path as text"}


@functools.cache
def field_types(cls: type[Any]) -> Mapping[str, Any]:
    """The declared types of a class's fields, with their limits."""
    return typing.get_type_hints(cls, include_extras=True)


def field_limits(cls: type, name: str) -> Any:
    """The limits that a class declares for a field."""
    return next(item for item in field_types(cls)[name].__metadata__ if isinstance(item, (IntRange, FloatRange)))


def check_fields(instance: Any) -> None:
    """Compare the fields of a dataclass with their types."""
    for name, hint in field_types(instance.__class__).items():
        value = getattr(instance, name)
        if value is None and type(None) in _options(hint):
            continue
        if (expected := mismatch(value, hint)) is not None:
            what = f"{type(instance).__name__}.{name}"
            raise UsageError(f"{what}: expected {expected}, found {shorten(value)}", found=value)


def nearest(name: str, known_names: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known name, or all of them."""
    known_names = list(known_names)
    close = difflib.get_close_matches(name, known_names, n=1)
    return f"\nDo: write {close[0]}" if close else f" It has: {', '.join(known_names)}."


def element_type(hint: Any) -> tuple[Any, bool]:
    """The type of a declared value without None and limits, and whether it is a list of such."""
    hint = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return (typing.get_args(hint)[0], True) if typing.get_origin(hint) in (list, tuple) else (hint, False)


def mismatch(
    value: Any, hint: Any, limits_of: Callable[[Any], IntRange | FloatRange | None] | None = None
) -> str | None:
    """The type that was expected, in words, if a value does not match it; else None.

    Args:
        value: From a file.
        hint: The type: text, a number, a truth value, a path, a Literal, or a list or tuple of one of them. None may be an alternative, and
            `Annotated` around it.
        limits_of: Gives the limits that an annotation holds; by default annotations are the limits themselves.
    """
    kind, several = element_type(hint)
    if several:
        if not isinstance(value, (list, tuple)):
            return "a list"
        return next(
            (f"a list of {wrong}" for item in value if (wrong := _expected_text(item, kind, hint, limits_of))), None
        )
    return _expected_text(value, kind, hint, limits_of)


def _expected_text(
    value: Any, kind: Any, hint: Any, limits_of: Callable[[Any], IntRange | FloatRange | None] | None
) -> str | None:
    if typing.get_origin(kind) is Literal:
        return None if value in typing.get_args(kind) else " or ".join(map(repr, typing.get_args(kind)))
    kinds = _options(kind) or (kind,)
    if not any(
        type(value) is (str if item is Path else item) or (item is float and type(value) is int) for item in kinds
    ):
        return " or ".join(_WORDS[item] for item in kinds)
    for item in getattr(hint, "__metadata__", ()):
        limits = limits_of(item) if limits_of else item if isinstance(item, (IntRange, FloatRange)) else None
        if limits is not None:
            try:
                limits.read(str(value))
            except ValueError:
                return str(limits)
    return None


def _options(hint: Any) -> tuple[Any, ...]:
    """The types of a union; none where it is no union."""
    hint = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else ()
