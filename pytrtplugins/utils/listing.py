"""Counts and lists in sentences: ``1 layer``, ``2,000 layers``, ``'a', 'b' and 7 more``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .text_formats import shorten

__all__ = ["count_text", "first_lines", "first_names", "first_texts", "some_names"]


def count_text(number: int, noun: str) -> str:
    """A number with its noun, which gets an s unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_texts(texts: Sequence[str], most: int, comma: str = ", ", last: str = " and ") -> str:
    """The first texts, and how many more there are: ``a, b and 7 more``."""
    more = f"{last}{len(texts) - most:,} more" if len(texts) > most else ""
    return comma.join(texts[:most]) + more


def first_names(names: Sequence[str], most: int = 10) -> str:
    """The first names, each in quotes, and how many more there are."""
    return first_texts([*map(repr, names)], most)


def some_names(names: Sequence[str], most: int = 3) -> str:
    """The first names, shortened and in quotes, and how many more there are: ``'a', 'b' (and 7 more)``, or ``none``."""
    more = f" (and {len(names) - most:,} more)" if len(names) > most else ""
    return (", ".join(map(shorten, names[:most])) or "none") + more


def first_lines(lines: Sequence[str], most: int = 10) -> Iterator[str]:
    """The first lines, indented, and the number of lines left out, which ``--json`` lists."""
    yield from (f"  {line}" for line in lines[:most])
    if len(lines) > most:
        yield f"  and {len(lines) - most:,} more, which --json lists"
