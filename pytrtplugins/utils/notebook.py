"""Notebook displays of objects: a heading, a table and notes, as HTML without scripts, in the colours of the page."""

from __future__ import annotations

import html
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["ShownAlike", "view"]

_ROWS = 30
_LENGTH = 300  # characters of a cell
_LINE = "border-bottom: 1px solid rgba(128, 128, 128, 0.35)"
_CELL = f"padding: 2px 12px 2px 0; text-align: left; vertical-align: top; overflow-wrap: break-word; {_LINE}"


def view(
    title: str, columns: Sequence[str] = (), rows: Iterable[Sequence[object]] = (), notes: Iterable[object] = ()
) -> str:
    """An object as HTML. All that is given is text: it is cut where it is long, and escaped.

    Args:
        title: What the object is; empty: no heading.
        columns: Heads of the table's columns.
        rows: Their cells; of many rows the first are shown, and how many there are.
        notes: Lines below the table.
    """
    given = list(rows)
    parts = [f"<p><b>{_text(title)}</b></p>"] if title else []
    if given:
        head, body = _row("th", columns), "".join(_row("td", row) for row in given[:_ROWS])
        parts.append(f'<table style="border-collapse: collapse"><thead>{head}</thead><tbody>{body}</tbody></table>')
    more = [f"and {len(given) - _ROWS:,} more"] if given[_ROWS:] else []
    parts += [f"<p>{_text(note)}</p>" for note in (*more, *notes)]
    return f'<div style="overflow-x: auto">{"".join(parts)}</div>'


class ShownAlike:
    """A method that a class has as well as its instances: the function is called with the one or the other.

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
