"""Write the results of a search as an HTML page with plots: one file without external resources."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..utils.atomic import write_atomic
from ..utils.web_page import html_table, web_page
from .plots import draw_errors, draw_front, draw_histograms, draw_ranges, number_text, svg_of

__all__ = ["write_html"]

_TOOLS = """<div id="tools" hidden><input type="search" placeholder="Search layers" aria-label="Search layers">
<button name="in" title="zoom in">+</button> <button name="out" title="zoom out">−</button>
<button name="left" title="to earlier layers">◀</button> <button name="right" title="to later layers">▶</button>
<button name="whole" title="all layers">all</button>
<output></output></div>"""
_HELP = """<p>Search hides the rows of other layers and marks those found in the plots; Enter zooms to them.
A click on a column's head sorts. In the first two plots drag over layers to zoom, click for a layer's figures, double-click
for all layers.</p>"""
_HEAD = (
    "",
    "layer",
    "operator",
    "own error",
    "in the network before",
    "after",
    "largest |x|",
    "precision holds",
    "clipped %",
    "precision",
)


def write_html(data: Mapping[str, Any], path: str | Path) -> None:
    """Write a page: the changed layers, all layers, and plots. Its own script searches, sorts and zooms.

    Raises:
        MissingExtraError: matplotlib is missing.
    """
    facts = data["facts"]
    title = f"{facts.get('precision')} on engine {facts.get('engine')}, {facts.get('tolerance')}"
    no = f"<b>The outputs are not within tolerance</b> ({html.escape(data['reason'])})"
    state = "The outputs are within tolerance" if data["holds"] else no
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{state}: error {number_text(data['final_before'])} of the tolerance before, {number_text(data['final'])} after. Latency "
        f"{number_text(data['latency_before_us'])} µs before, {number_text(data['latency_us'])} µs after, "
        f"{number_text(data['latency_fp32_us'])} µs in float32 ({html.escape(str(facts.get('latency')))}). "
        f"{data['runs']} evaluations; tensors compared on {facts.get('samples')} sample{'s' * (facts.get('samples') != 1)}.</p>",
        _TOOLS,
        "<h2>Changed layers</h2>",
        _layers_table(data),
        "<h2>All layers</h2>",
        _HELP,
        _all_layers(data),
        "<h2>Error of each layer, in the order of the network</h2>",
        _zoomable(svg_of((11, 5.4), lambda figure: draw_errors(figure, data))),
        "<h2>Values of the layers and the range of the precision</h2>",
        _zoomable(svg_of((11, 4.4), lambda figure: draw_ranges(figure, data["before"]))),
        svg_of((11, 5.8), lambda figure: draw_histograms(figure, data)),
        "<h2>Latency against accuracy</h2>",
        svg_of((8, 4.2), lambda figure: draw_front(figure, data)),
        "<h2>What was tried</h2>",
        _steps_table(data),
        _reverted_text(data),
    ]
    style, script = (Path(__file__).with_name(name).read_text("utf-8") for name in ("page.css", "page.js"))
    write_atomic(path, web_page(title, parts, style=style, script=script).encode())


def _zoomable(plot: str) -> str:
    """A plot that the page's script can zoom."""
    return plot.replace("<svg ", '<svg class="zoom" ', 1)


def _all_layers(data: Mapping[str, Any]) -> str:
    after = {row["name"]: row["total"] for row in data["after"]}
    low = str(data["facts"].get("precision", ""))
    rows = [
        (number, row["name"], str(row.get("op_type", "")), number_text(row["own"]), number_text(row["total"]),
         number_text(after.get(row["name"])), number_text(row["amax"]), number_text(row["limit"] or None),
         number_text(100 * float(row["clipped"])), data["layers"].get(row["name"], {}).get("precision", low))
        for number, row in enumerate(data["before"], 1)
    ]  # fmt: skip
    return html_table(_HEAD, rows, "layers") if rows else "<p>None.</p>"


def _layers_table(data: Mapping[str, Any]) -> str:
    if not data["layers"]:
        return "<p>None: every layer computes in low precision.</p>"
    rows = [
        (name, layer["precision"], layer["strategy"], number_text(layer["error_before"]), number_text(layer["error_after"]),
         number_text(layer["latency_us"]), layer["reason"])
        for name, layer in data["layers"].items()
    ]  # fmt: skip
    return html_table(("layer", "precision", "strategy", "error before", "after", "µs", "reason"), rows)


def _steps_table(data: Mapping[str, Any]) -> str:
    """The table of the search's steps, as HTML."""
    rows = [
        (number, step["layer"], number_text(step["own"]), name, number_text(error), number_text(cost),
         "kept" if name == step["action"] else "")
        for number, step in enumerate(data["steps"], 1)
        for name, error, cost in step["tried"]
    ]  # fmt: skip
    head = ("step", "layer", "own error", "intervention", "error with it", "µs more", "")
    return html_table(head, rows) if rows else "<p>Nothing.</p>"


def _reverted_text(data: Mapping[str, Any]) -> str:
    pairs = [html.escape(f"{layer} ({name})") for layer, name in data["reverted"]]
    return (
        f"<p>Reverted at the end, since the outputs are within tolerance without these changes: {', '.join(pairs)}.</p>"
        if pairs
        else ""
    )
