"""Replace items of repeated fields of protobuf messages in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["keep_items", "set_items"]


def keep_items(field: Any, keep: Callable[[Any], bool]) -> None:
    """Delete the items of a repeated field for which ``keep`` is false, in place; the others, which may be large, are not copied."""
    for index in reversed(range(len(field))):
        if not keep(field[index]):
            del field[index]


def set_items(field: Any, items: Iterable[Any]) -> None:
    """Replace the items of a repeated field by copies of these items, which may be items of the field."""
    items = list(items)
    del field[:]
    field.extend(items)
