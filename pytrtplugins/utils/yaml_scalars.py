"""Scalars of YAML that keep the text that they were written as: what goes into commands stays ``010``, ``3.10`` or ``on``."""

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
    """A number with its text."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Read the text."""
        number = super().__new__(cls, text)  # type: ignore[call-arg]  # int's or float's
        number.text = text
        return number


class WrittenInt(WrittenNumber, int):
    """A whole number with its text."""


class WrittenFloat(WrittenNumber, float):
    """A number with a fraction or an exponent, with its text."""


class Unquoted(str):
    """A text without quotes that some readers of YAML take for a truth value, or for nothing."""

    __slots__ = ()


def as_number(text: str) -> WrittenInt | WrittenFloat | None:
    """The number that a text is, as JSON writes numbers; None where it is none."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if match[1] is None and match[2] is None:
        return WrittenInt(text)
    number = WrittenFloat(text)
    return number if math.isfinite(number) else None


def read_plain(text: str) -> bool | WrittenInt | WrittenFloat | str | None:
    """What a scalar without quotes is: nothing, ``true`` or ``false``, a number as JSON writes them, else its text."""
    if not text:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    number = as_number(text)
    if number is not None:
        return number
    return Unquoted(text) if _LIKE_TRUTHS.fullmatch(text) else text
