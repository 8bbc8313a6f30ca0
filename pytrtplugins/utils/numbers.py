"""Numbers from callers, compared with limits before they are used."""

from __future__ import annotations

import argparse
import operator
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from ..errors import UsageError
from .text_formats import shorten

__all__ = [
    "LARGEST_BATCH",
    "MAX_SLOTS",
    "MAX_THREADS",
    "SHARE",
    "THREADS",
    "FloatRange",
    "IntList",
    "IntRange",
    "check_int",
    "check_share",
]

_Number = TypeVar("_Number", int, float)
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_LONGEST_REAL = 400  # characters: the largest float64, written out, has 309


def check_int(what: str, value: Any, minimum: int, maximum: int) -> int:
    """Check a whole number against limits: NumPy's are accepted, truth values are not. ``what`` names the number in the message."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not minimum <= number <= maximum:
        raise UsageError(
            f"{what}: expected a whole number from {minimum:,} to {maximum:,}, found {shorten(value)}",
            minimum=minimum,
            maximum=maximum,
            found=value,
        )
    return number


def check_share(what: str, value: Any) -> float:
    """A number from 0 to 1."""
    try:
        number = float("nan") if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not 0 <= number <= 1:
        raise UsageError(f"{what}: expected a number from 0 to 1, found {shorten(value)}", found=value)
    return number


@dataclass(frozen=True)
class _Limits(ABC, Generic[_Number]):
    """A range of numbers, as the ``type`` of an option of argparse; `read` is for other callers."""

    minimum: _Number
    maximum: _Number
    _form: ClassVar[tuple[str, str]]  # how messages call such a number, and how they write one

    def read(self, text: str) -> _Number:
        """Parse a number that a user typed."""
        try:
            number = self._parse(text)
            if self.minimum <= number <= self.maximum:
                return number
        except ValueError:
            pass
        raise ValueError(f"expected {self}, found {shorten(text)}")

    def __call__(self, text: str) -> _Number:
        """Parse an option's text for argparse, whose error names the option."""
        try:
            return self.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    def __str__(self) -> str:
        """The range in words, for messages."""
        what, form = self._form
        return f"{what} from {self.minimum:{form}} to {self.maximum:{form}}"

    @abstractmethod
    def _parse(self, text: str) -> _Number: ...


class IntRange(_Limits[int]):
    """Whole numbers within limits, such as 1 to 4,096."""

    _form = ("a whole number", ",")

    def _parse(self, text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError(text)
        return int(text)


class FloatRange(_Limits[float]):
    """Numbers within limits; NaN is refused."""

    _form = ("a number", ",.10g")

    def _parse(self, text: str) -> float:
        if len(text) > _LONGEST_REAL:
            raise ValueError(text)
        return float(text)


@dataclass(frozen=True)
class IntList:
    """Whole numbers separated by commas, each within limits, as the ``type`` of an option of argparse."""

    each: IntRange
    minimum: int = 1
    maximum: int = 1000

    def __call__(self, text: str) -> tuple[int, ...]:
        """Parse an option's text for argparse, whose error names the option."""
        parts = text.split(",", self.maximum)
        try:
            if not self.minimum <= len(parts) <= self.maximum:
                raise ValueError(text)
            return tuple(self.each.read(part.strip()) for part in parts)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {self}, found {shorten(text)}") from None

    def __str__(self) -> str:
        """The expected numbers in words, for messages."""
        count = f"{self.minimum}" if self.minimum == self.maximum else f"{self.minimum:,} to {self.maximum:,}"
        return f"{count} numbers, each {self.each}, with commas between them"


LARGEST_BATCH = 1 << 16
"""Images of one run of engine `cudnn`; here, where commands know it without the engine."""
MAX_SLOTS = 256
"""Runs of a stream at a time."""
MAX_THREADS = 4096
"""CPU threads of a run."""
THREADS = IntRange(1, MAX_THREADS)
SHARE = FloatRange(0, 1)
