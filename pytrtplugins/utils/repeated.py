"""Repeated fields of protobuf messages: which items they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["keep_items", "set_items"]


def keep_items(field: Any, wanted: Callable[[Any], bool]) -> None:
    """Delete the other items of a repeated field in place; those that stay, which may be large, are not copied."""
    for index in reversed(range(len(field))):
        if not wanted(field[index]):
            del field[index]


def set_items(field: Any, items: Iterable[Any]) -> None:
    """Let a repeated field hold copies of these items, which may be its own, and no others."""
    items = list(items)
    del field[:]
    field.extend(items)
