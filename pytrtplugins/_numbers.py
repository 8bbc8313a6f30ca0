"""Numbers that callers give, held against what makes sense before anything is made of them."""

from __future__ import annotations

import operator
from typing import Any

from ._text_formats import shorten
from .errors import UsageError

__all__ = ["check_share", "check_whole"]


def check_whole(what: str, value: Any, least: int, most: int) -> int:
    """A whole number within limits.

    Args:
        what: Its name, for the message: ``"stream: slots"``.
        value: What was given; NumPy's whole numbers will do, truth values will not.
        least: The smallest.
        most: The largest.

    Raises:
        UsageError: it is no whole number, or is outside.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise UsageError(
            f"{what}: expected a whole number from {least:,} to {most:,}, found {shorten(value)}",
            least=least,
            most=most,
            found=value,
        )
    return number


def check_share(what: str, value: Any) -> float:
    """A number from 0 to 1.

    Raises:
        UsageError: it is no number, is NaN, or is outside.
    """
    try:
        number = float("nan") if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not 0 <= number <= 1:
        raise UsageError(f"{what}: expected a number from 0 to 1, found {shorten(value)}", found=value)
    return number
