"""The style of all figures, and saving a figure to a file."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .atomic import atomic_path, check_target
from .optional import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "DARK_CSS",
    "FAINT",
    "INK",
    "MUTED",
    "PALETTE",
    "STYLE",
    "check_figure",
    "drawing",
    "name_powers",
    "save",
    "svg",
]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Colours C0 to C5: those of Okabe and Ito that can be seen on white and on black. Readers with any colour vision tell them apart."""
INK, MUTED, FAINT = "#1f2328", "#848d97", "#d8dee4"
"""Text and frames; what stays in the background; lines of the grid."""
_DARK = {INK: "#e6edf3", FAINT: "#3d444d"}
DARK_CSS = "@media (prefers-color-scheme: dark) {{{}}}".format(
    " ".join(
        f'[style*="{key}: {light}"] {{{key}: {dark} !important}}'
        for light, dark in _DARK.items()
        for key in ("fill", "stroke")
    )
)
"""Rules for an SVG: text, frames and grid become light where the reader's screen is dark."""
STYLE: dict[str, Any] = {
    "axes.prop_cycle": f"cycler('color', {list(PALETTE)})",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "font.family": "sans-serif",
    "font.size": 10,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "figure.facecolor": "white",
    "savefig.dpi": 120,
    "svg.hashsalt": "pytrtplugins",  # the same figure has the same bytes
}
"""What matplotlib draws with (its rcParams), wherever the project draws."""
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@contextmanager
def drawing(width: float, height: float, *, feature: str = "a chart") -> Iterator[Figure]:
    """Yield an empty figure with the project's style in matplotlib, sizes in inches. Draw and save it inside the block."""
    matplotlib = require("matplotlib", extra="cli", feature=feature)
    figure = require("matplotlib.figure", extra="cli", feature=feature)
    with matplotlib.rc_context(STYLE):
        yield figure.Figure(figsize=(width, height), layout="constrained")


def check_figure(path: str | Path) -> Path:
    """Return a path that a figure can be saved to; call it before a long measurement, so that errors come early.

    Raises:
        UsageError: the suffix is not .png, .svg or .pdf, or the folder does not exist.
    """
    path = check_target(path, "plot", (".png", ".svg", ".pdf"))
    require("matplotlib", extra="cli", feature="a chart")
    return path


def save(figure: Figure, *paths: Path) -> None:
    """Write a figure to each path, whole or not at all; the suffix chooses the format, PNG where there is none."""
    for path in paths:
        suffix = path.suffix[1:].lower() or "png"
        with atomic_path(path) as temporary:
            if suffix == "svg":
                temporary.write_text(svg(figure), encoding="utf-8")
            else:
                figure.savefig(temporary, format=suffix)


def name_powers(axis: Any) -> None:
    """Name the powers of ten on a logarithmic axis by raised digits, which are text: matplotlib would typeset them as mathematics."""
    axis.set_major_formatter(_power)


def _power(value: float, position: int | None = None) -> str:
    if not value:  # on an axis that is linear around zero
        return "0"
    return f"{'−' if value < 0 else ''}10{str(round(math.log10(abs(value)))).translate(_RAISED)}"


def svg(figure: Figure, *, text: bool = False) -> str:
    """A figure of `drawing` as SVG without a background, for light and dark pages; ``text`` stays text, in the reader's font."""
    matplotlib = require("matplotlib", extra="cli", feature="a chart")
    backend = require("matplotlib.backends.backend_svg", extra="cli", feature="a chart")
    buffer, background = io.StringIO(), figure.get_facecolor()
    figure.set_facecolor("none")
    with matplotlib.rc_context({"svg.fonttype": "none" if text else "path"}):
        backend.FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})  # savefig would draw twice
    figure.set_facecolor(background)
    return buffer.getvalue().replace("</svg>", f"<style>{DARK_CSS}</style>\n</svg>")
