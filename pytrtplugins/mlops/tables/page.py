"""Write a table as Markdown, as an HTML page and as a chart of accuracy over latency."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...utils.atomic import write_atomic
from ...utils.figures import drawing, save, svg
from ...utils.web_page import html_table, web_page
from .rows import Table, TableRow
from .tasks import Figure

__all__ = ["draw_chart", "to_markdown", "write_html"]

_SIZE = (10, 4.8)
_LINES = 12  # in which marks count as side by side
_HEIGHT = 0.6  # of such a line takes a line of text
_MARKS = {"fp32": "o", "tf32": "v", "bf16": "^", "fp16": "s", "int8": "D", "fp8": "P"}
_OTHERS = "X*ph<>"  # precision files, in their order
_STYLE = """
body { max-width: 76rem; }
table { width: auto; font-variant-numeric: tabular-nums; }
th, td { text-align: right; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
"""


def to_markdown(table: Table) -> str:
    """The table as Markdown, with remarks for its reader."""
    head = table.columns()
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(table.cells(row)) + " |" for row in table.measured]
    return "\n".join([*lines, "", *(f"- {remark}" for remark in table.remarks())]) + "\n"


def write_html(table: Table, path: str | Path) -> None:
    """Write a page: the table, the chart and the remarks, in one file without scripts.

    Raises:
        MissingExtraError: matplotlib is missing.
    """
    with drawing(*_SIZE) as figure:
        _draw(figure, table)
        chart = svg(figure)
    chart = chart[chart.index("<svg") :]
    title = f"{table.model}: {table.task}"
    remarks = "".join(f"<li>{html.escape(remark)}</li>" for remark in table.remarks())
    rows = html_table(table.columns(), map(table.cells, table.measured))
    page = web_page(title, (f"<h1>{html.escape(title)}</h1>", rows, chart, f"<ul>{remarks}</ul>"), style=_STYLE)
    write_atomic(path, page.encode())


def draw_chart(table: Table, path: str | Path) -> None:
    """Draw accuracy over latency: a colour for each engine, a mark for each precision.

    Raises:
        MissingExtraError: matplotlib is missing.
    """
    with drawing(*_SIZE) as figure:
        _draw(figure, table)
        save(figure, Path(path))


def _draw(figure: Any, table: Table) -> None:
    drawn = [figure_of_table for figure_of_table in table.figures if figure_of_table.drawn]
    shown: dict[str, Any] = {}
    for axes, figure_kind in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        shown |= _draw_figure(axes, table, figure_kind)
    figure.suptitle("\n".join(filter(None, (table.model, table.machine.get("processor")))))
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=min(4, max(1, len(shown))))


def _draw_figure(axes: Any, table: Table, kind: Figure) -> dict[str, Any]:
    """Draw one figure of accuracy over latency; returns the legend's markers."""
    batch = table.batches[0]
    times = {_kind(row): row.latency[batch].p50_ms for row in table.measured if batch in row.latency}
    rows = [row for row in table.measured if _kind(row) in times and kind.key in row.figures]
    engines = list(dict.fromkeys(row.variant.engine for row in rows))
    values = [row.figures[kind.key] for row in rows]
    room = max(max(values, default=1.0) - min(values, default=1.0), 10.0**-kind.digits * 20)
    marks = _marks(row.variant.precision for row in rows)
    shown: dict[str, Any] = {}
    texts: dict[float, dict[int, dict[str, list[int]]]] = {}
    for row, value in zip(rows, values, strict=True):
        at, color = times[_kind(row)], f"C{engines.index(row.variant.engine)}"
        points = axes.scatter([at], [value], marker=marks[row.variant.precision], s=60, color=color, zorder=3)
        shown.setdefault(" ".join(_kind(row)), points)
        if row.variant.algorithm and sum(_kind(other) == _kind(row) for other in rows) > 1:
            near = texts.setdefault(at, {}).setdefault(round(value / room * _LINES), {})
            near.setdefault(row.variant.algorithm, []).append(row.variant.samples)
    for at, by_line in texts.items():
        for line, text in _apart(by_line):
            axes.annotate(
                text, (at, line * room / _LINES), textcoords="offset points", xytext=(8, 0), va="top", fontsize=7
            )
    axes.set_xlim(0, 1.25 * max(times.values(), default=1.0))
    axes.set_ylim(min(values, default=0.0) - 0.15 * room, max(values, default=1.0) + 0.1 * room)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_xlabel(f"latency, p50, ms, batch {batch}")
    axes.set_ylabel(kind.title)
    return shown


def _apart(texts: Mapping[int, Mapping[str, list[int]]]) -> Iterator[tuple[float, str]]:
    """Texts by the line of their mark, from the top: each begins at its line, or where the one above it ends."""
    end = float("inf")
    for line, words in sorted(texts.items(), reverse=True):
        begin = min(line, end)
        yield begin, "\n".join(f"{algorithm} {', '.join(map(str, samples))}" for algorithm, samples in words.items())
        end = begin - _HEIGHT * len(words)


def _marks(precisions: Iterable[str]) -> dict[str, str]:
    """Markers by precision; precision files have their own, as long as there are enough."""
    files = dict.fromkeys(name for name in precisions if name not in _MARKS)
    return {**_MARKS, **dict(zip(files, itertools.cycle(_OTHERS), strict=False))}


def _kind(row: TableRow) -> tuple[str, str]:
    """Rows of equal kind have equal latency: engine and precision."""
    return row.variant.engine, row.variant.precision
