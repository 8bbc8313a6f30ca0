"""Charts of results, each as an SVG file, which pages show, and as a PNG file, for readers without SVG."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytrtplugins.utils.figures import MUTED, drawing, save

__all__ = ["Chart", "Dot", "dots"]

_COMMENTS = re.compile(r"<!-- (.*?) -->", re.DOTALL)


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        name: Of its files in the folder images beside the page, without a suffix.
        text: What a page says in its place where images are not shown.
        height: In inches.
        draw: Draws it into an empty figure of matplotlib's.
        labels: The texts beside its figures, and its title: what has to be in the file.
    """

    name: str
    text: str
    height: float
    draw: Callable[[Any], None]
    labels: Sequence[str]

    @property
    def link(self) -> str:
        """The chart in a page; it opens as PNG."""
        return f"[![{self.text}](images/{self.name}.svg)](images/{self.name}.png)"

    def save(self, folder: Path) -> None:
        """Draw the chart into the images of a folder of pages."""
        folder = folder / "images"
        folder.mkdir(parents=True, exist_ok=True)
        with drawing(9, self.height) as canvas:
            self.draw(canvas)
            save(canvas, folder / f"{self.name}.svg", folder / f"{self.name}.png")

    def missing_labels(self, folder: Path) -> list[str]:
        """Return the labels that the SVG file in the images of a folder lacks: matplotlib writes each text beside its outlines."""
        path = folder / "images" / f"{self.name}.svg"
        if not path.exists() or not path.with_suffix(".png").exists():
            return list(self.labels)
        texts = {html.unescape(text).strip() for text in _COMMENTS.findall(path.read_text("utf-8"))}
        return [label for label in self.labels if label.strip() not in texts]


@dataclass(frozen=True)
class Dot:
    """A row of a chart of dots.

    Attributes:
        name: Of the row.
        value: Its figure.
        text: What stands beside it.
        is_own: Whether it is this project's.
    """

    name: str
    value: float
    text: str
    is_own: bool


def dots(name: str, text: str, title: str, axis: str, rows: Sequence[Dot]) -> Chart:
    """Return a chart of figures as dots on a logarithmic axis, the first row at the bottom."""

    def draw(canvas: Any) -> None:
        from matplotlib import ticker

        axes = canvas.subplots()
        for place, row in enumerate(rows):
            axes.plot(row.value, place, "o", color="C0" if row.is_own else MUTED, markersize=8)
            axes.annotate(row.text, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        axes.set_yticks(range(len(rows)), [row.name for row in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xscale("log", subs=())
        values = [row.value for row in rows]
        is_narrow = max(values) < 4 * min(values)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5) if is_narrow else ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(axis="x")
        axes.grid(axis="y", linestyle=":")
        axes.set_xlabel(axis)
        canvas.suptitle(title, fontsize=10)

    labels = [title, *(text for row in rows for text in (row.name, row.text))]
    return Chart(name, text, 0.32 * len(rows) + 1.3, draw, labels)
