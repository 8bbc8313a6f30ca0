"""Options that take a number within limits; the error for another one names the option and the limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import UsageError
from ...utils.numbers import FloatRange, IntRange
from .option import typer

__all__ = ["limits_of", "number"]


def number(limits: IntRange | FloatRange, help: str, *names: str, metavar: str = "N") -> Any:
    """Declaration of an option that takes a number, or several if it may be repeated, for `Annotated`."""
    return typer.Option(*names, metavar=metavar, help=help, parser=str, callback=_reading(limits))


def limits_of(option: Any) -> IntRange | FloatRange | None:
    """The limits of an option that `number` made; None for others."""
    return getattr(option.callback, "limits", None)


def _reading(limits: IntRange | FloatRange) -> Callable[[Any, Any, Any], Any]:
    def read(context: Any, parameter: Any, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [read(context, parameter, item) for item in value]
        if value is None:
            return None
        try:
            return limits.read(value)
        except ValueError as error:
            raise UsageError(f"{max(parameter.opts, key=len)}: {error}") from None

    read.limits = limits  # type: ignore[attr-defined]
    return read
