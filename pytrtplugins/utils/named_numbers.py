"""Flatten nested JSON values to numbers by dotted names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["named_numbers"]


def named_numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield each number of nested JSON objects with its name: the keys on the way to it, joined by dots.

    Objects in a list are known by their ``name``, or by their place; lists of numbers are left out. Truth values are 0 and 1.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from named_numbers(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, Mapping):
                key = item["name"] if isinstance(item.get("name"), str) else number
                yield from named_numbers(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (bool, int, float)):
        yield name or "value", float(value)
