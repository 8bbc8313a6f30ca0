"""Notebook displays of objects: a heading, a table and notes, as HTML without scripts, in the colours of the page."""

from __future__ import annotations

import html
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["ClassOrInstanceMethod", "object_html"]

_ROWS = 30
_LENGTH = 300  # characters of a cell
_LINE = "border-bottom: 1px solid rgba(128, 128, 128, 0.35)"
_CELL = f"padding: 2px 12px 2px 0; text-align: left; vertical-align: top; overflow-wrap: break-word; {_LINE}"


def object_html(
    title: str, columns: Sequence[str] = (), rows: Iterable[Sequence[object]] = (), notes: Iterable[object] = ()
) -> str:
    """HTML of an object: title, table and notes. All arguments are plain text, which is shortened and escaped.

    Args:
        title: What the object is; empty: no heading.
        columns: Heads of the table's columns.
        rows: Their cells; of many rows the first are shown, and how many there are.
        notes: Lines below the table.
    """
    all_rows = list(rows)
    parts = [f"<p><b>{_text(title)}</b></p>"] if title else []
    if all_rows:
        head, body = _row("th", columns), "".join(_row("td", row) for row in all_rows[:_ROWS])
        parts.append(f'<table style="border-collapse: collapse"><thead>{head}</thead><tbody>{body}</tbody></table>')
    more = [f"and {len(all_rows) - _ROWS:,} more"] if all_rows[_ROWS:] else []
    parts += [f"<p>{_text(note)}</p>" for note in (*more, *notes)]
    return f'<div style="overflow-x: auto">{"".join(parts)}</div>'


class ClassOrInstanceMethod:
    """Descriptor of a method that works on a class and on its instances: the function gets the one or the other.

    Notebooks ask a class for its own methods only, such as those bound to it.
    """

    def __init__(self, function: Callable[[Any], str]) -> None:
        self._function = function

    def __get__(self, instance: object, owner: type) -> types.MethodType:
        return types.MethodType(self._function, owner if instance is None else instance)


def _row(cell: str, values: Iterable[object]) -> str:
    cells = "".join(f'<{cell} style="{_CELL}">{_text(value)}</{cell}>' for value in values)
    return f"<tr>{cells}</tr>"


def _text(value: object) -> str:
    text = str(value)
    return html.escape(text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…").replace("\n", "<br>")
