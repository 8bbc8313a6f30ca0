"""Scalars of YAML that keep their text, so that ``010``, ``3.10`` or ``on`` stays the same in a command."""

from __future__ import annotations

import math
import re
from typing import Self

__all__ = ["Unquoted", "WrittenFloat", "WrittenInt", "WrittenNumber", "as_number", "read_plain"]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?")
"""JSON's numbers: others, such as 010, 0x1F, 1_000 and 12:30:00, readers of YAML take for different ones."""
_TRUTHS = {"true": True, "false": False}
_LIKE_TRUTHS = re.compile(r"(?i:true|false|yes|no|on|off|y|n|null|~)")


class WrittenNumber:
    """A number that keeps its text."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Read the text."""
        number = super().__new__(cls, text)  # type: ignore[call-arg]  # int's or float's
        number.text = text
        return number


class WrittenInt(WrittenNumber, int):
    """A whole number that keeps its text."""


class WrittenFloat(WrittenNumber, float):
    """A number with a fraction or an exponent, which keeps its text."""


class Unquoted(str):
    """A text without quotes that some YAML parsers read as a truth value or null."""

    __slots__ = ()


def as_number(text: str) -> WrittenInt | WrittenFloat | None:
    """Parse a number that is written as in JSON; None if the text is not one."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if match[1] is None and match[2] is None:
        return WrittenInt(text)
    number = WrittenFloat(text)
    return number if math.isfinite(number) else None


def read_plain(text: str) -> bool | WrittenInt | WrittenFloat | str | None:
    """Parse a scalar without quotes: null if empty, ``true`` or ``false``, a number as in JSON, else its text."""
    if not text:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    number = as_number(text)
    if number is not None:
        return number
    return Unquoted(text) if _LIKE_TRUTHS.fullmatch(text) else text
