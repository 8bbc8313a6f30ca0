"""Tables in Markdown, described by their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["MISSING", "Column", "figure", "left", "right", "table"]

MISSING = "–"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        head: Its heading.
        value: The field of a row, or a function of the row; None is shown as a dash.
        form: How :func:`format` writes the value.
        is_right: Whether cells are aligned to the right.
    """

    head: str
    value: str | Callable[[Any], Any]
    form: str = ""
    is_right: bool = True

    def cell(self, row: Row) -> str:
        """Return the text of a row's cell."""
        return figure(row.get(self.value) if isinstance(self.value, str) else self.value(row), self.form)


def left(head: str, value: str | Callable[[Any], Any]) -> Column:
    """Return a column of words."""
    return Column(head, value, is_right=False)


def right(head: str, value: str | Callable[[Any], Any], form: str = "") -> Column:
    """Return a column of figures."""
    return Column(head, value, form)


def figure(value: Any, form: str = "") -> str:
    """Return a value as text; None as a dash."""
    return MISSING if value is None else format(value, form)


def table(columns: Sequence[Column], rows: Iterable[Row]) -> str:
    """Return a table; a column whose field no row has is left out."""
    rows = list(rows)
    columns = [
        each
        for each in columns
        if not rows or not isinstance(each.value, str) or any(each.value in row for row in rows)
    ]
    lines = [[each.head for each in columns], *([each.cell(row) for each in columns] for row in rows)]
    texts = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([texts[0], "|" + "".join("---:|" if each.is_right else "---|" for each in columns), *texts[1:]])
