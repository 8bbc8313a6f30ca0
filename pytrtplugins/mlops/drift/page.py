"""Write a comparison of two sets as Markdown, as an HTML page and as a chart."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...utils.atomic import write_atomic
from ...utils.figures import drawing, save, svg
from ...utils.web_page import html_table, web_page
from .compare import Comparison, Drift, Spread

__all__ = ["COLUMNS", "cells", "draw_chart", "remarks", "to_markdown", "write_html"]

COLUMNS = ("", "A: median (5 %..95 %)", "B: median (5 %..95 %)", "PSI", "by chance", "Jensen-Shannon")
_ACROSS, _PANEL = 3, (3.4, 2.1)  # panels side by side; inches of one
_MOST_CLASSES = 20


def cells(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """The rows of the table, under `COLUMNS`."""
    for row in comparison.rows:
        figures = (f"{row.psi:.3f}", f"{row.chance:.3f}", f"{row.jensen_shannon:.3f}")
        yield (row.title, _spread(row.a), _spread(row.b), *figures)
    embedding = comparison.embedding
    if embedding is not None:
        title = f"vectors of {embedding.values} values, {embedding.output}: MMD²"
        yield (title, "–", "–", f"{embedding.mmd:.4f}", f"{embedding.chance:.4f}", "–")


def remarks(comparison: Comparison) -> Iterator[str]:
    """Remarks for the reader of a comparison."""
    for name, summary in (("A", comparison.a), ("B", comparison.b)):
        bad = f"; {summary.unreadable:,} cannot be decoded" if summary.unreadable else ""
        measured = f"{summary.measured:,} of them measured, {summary.labelled:,} of those with boxes"
        yield f"{name} is {summary.name}: {summary.photos:,} photos, {measured}{bad}."
    yield f"Drift, the largest PSI that is more than chance: {comparison.drift:.3f}."
    for over in comparison.exceeded:
        yield f"Beyond the limit: {over.figure} is {over.found:.4g}, the limit is {over.most:g}."


def to_markdown(comparison: Comparison) -> str:
    """The comparison as Markdown: table, classes and remarks."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in cells(comparison)]
    if comparison.classes:
        lines += ["", "| class | share of A's boxes | share of B's boxes |", "|---|---:|---:|"]
        lines += [f"| {name} | {a} | {b} |" for name, a, b in _class_rows(comparison)]
    return "\n".join([*lines, "", *(f"- {remark}" for remark in remarks(comparison))]) + "\n"


def write_html(comparison: Comparison, path: str | Path) -> None:
    """Write a page: the tables, the chart and the remarks, in one file without scripts.

    Raises:
        MissingExtraError: matplotlib is missing.
    """
    with drawing(*_size(comparison)) as figure:
        _draw(figure, comparison)
        chart = svg(figure)
    beyond = {limit.figure: limit.most for limit in comparison.exceeded}
    most = beyond.get("drift", math.inf)
    marked = [row.name in beyond or row.drift > most for row in comparison.rows]
    rows = list(cells(comparison))
    marked += ["embedding" in beyond] * (len(rows) - len(marked))
    title = f"{comparison.a.name} and {comparison.b.name}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        html_table(COLUMNS, rows, marked=marked),
        chart[chart.index("<svg") :],
        "<ul>" + "".join(f"<li>{html.escape(remark)}</li>" for remark in remarks(comparison)) + "</ul>",
    ]
    if comparison.classes:
        parts.insert(2, html_table(("class", "share of A's boxes", "share of B's boxes"), _class_rows(comparison)))
    write_atomic(path, web_page(title, parts).encode())


def draw_chart(comparison: Comparison, path: str | Path) -> None:
    """Draw the distribution of every feature in both sets.

    Raises:
        MissingExtraError: matplotlib is missing.
    """
    with drawing(*_size(comparison)) as figure:
        _draw(figure, comparison)
        save(figure, Path(path))


def _spread(spread: Spread | None) -> str:
    return "–" if spread is None else f"{spread.median:.3g} ({spread.p5:.3g}..{spread.p95:.3g})"


def _class_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """The classes whose shares differ most."""
    by_change = sorted(comparison.classes, key=lambda share: -abs(share.a - share.b))[:_MOST_CLASSES]
    return [(share.name, f"{share.a:.1%}", f"{share.b:.1%}") for share in by_change]


def _features_to_draw(comparison: Comparison) -> list[Drift]:
    return [row for row in comparison.rows if row.edges]


def _size(comparison: Comparison) -> tuple[float, float]:
    down = math.ceil((len(_features_to_draw(comparison)) + bool(comparison.classes)) / _ACROSS)
    return _ACROSS * _PANEL[0], down * _PANEL[1] + 0.6


def _draw(figure: Any, comparison: Comparison) -> None:
    rows = _features_to_draw(comparison)
    count = len(rows) + bool(comparison.classes)
    panels = figure.subplots(math.ceil(count / _ACROSS), _ACROSS, squeeze=False).ravel()
    handles: list[Any] = []
    for axes, row in zip(panels, rows, strict=False):
        percent = [[100 * bar for bar in bars] for bars in (row.a_bars, row.b_bars)]
        handles = [
            axes.stairs(heights, row.edges, color=color, fill=True, alpha=0.4)
            for color, heights in zip(("C0", "C1"), percent, strict=True)
        ]
        for color, heights in zip(("C0", "C1"), percent, strict=True):
            axes.stairs(heights, row.edges, color=color)
        axes.set_title(f"{row.title}\nPSI {row.psi:.2f}, by chance {row.chance:.2f}", fontsize=9)
        axes.set_ylim(0)
        axes.set_ylabel("%")
    if comparison.classes:
        _draw_classes(panels[len(rows)], comparison)
    for axes in panels[count:]:
        axes.set_axis_off()
    names = [f"A: {comparison.a.name}", f"B: {comparison.b.name}"]
    figure.legend(handles, names, loc="outside lower center", ncols=2)


def _draw_classes(axes: Any, comparison: Comparison) -> None:
    shown = sorted(comparison.classes, key=lambda share: -abs(share.a - share.b))[:6]
    for place, share in enumerate(shown):
        axes.barh(place - 0.2, 100 * share.a, 0.36, color="C0", alpha=0.6)
        axes.barh(place + 0.2, 100 * share.b, 0.36, color="C1", alpha=0.6)
    axes.set_yticks(range(len(shown)), [share.name[:20] for share in shown])
    axes.invert_yaxis()
    row = next(row for row in comparison.rows if row.name == "classes")
    axes.set_title(f"classes, % of the boxes\nPSI {row.psi:.2f}, by chance {row.chance:.2f}", fontsize=9)
