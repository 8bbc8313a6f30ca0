"""Limits for figures of a comparison, such as ``drift=0.2``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import UsageError

__all__ = ["Limit", "read_limit"]

_LARGEST = 1e6


@dataclass(frozen=True)
class Limit:
    """The largest allowed value of a figure.

    Attributes:
        figure: Its name: ``drift``, ``embedding``, or a row of the comparison.
        most: The limit.
    """

    figure: str
    most: float


def read_limit(text: str) -> Limit:
    """A limit that a user typed, such as ``drift=0.2``.

    Raises:
        UsageError: it is none.
    """
    match = re.fullmatch(r"([a-z][a-z-]{0,40})=([0-9]{1,8}(?:\.[0-9]{1,12})?)", text)
    if match is None or float(match[2]) > _LARGEST:
        raise UsageError(f"limit {text[:60]!r}: expected a figure's name and a number, such as drift=0.2.")
    return Limit(match[1], float(match[2]))
