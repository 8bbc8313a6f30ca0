"""The targets by their names."""

from __future__ import annotations

from collections.abc import Callable

Target = Callable[[bytes], object]
TARGETS: dict[str, Target] = {}


def target(function: Target) -> Target:
    """Register a function under its name."""
    TARGETS[function.__name__] = function
    return function
