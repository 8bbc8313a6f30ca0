"""The plots of a precision report's page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..utils.figures import INK, MUTED, drawing, name_powers, svg

__all__ = ["draw_errors", "draw_front", "draw_histograms", "draw_ranges", "number_text", "svg_of"]

_SMALLEST, _LARGEST = 1e-6, 1e6  # errors are drawn between these
_MAX_HISTOGRAMS, _MAX_NAMES = 6, 64
_FAR = 3  # a limit so many times beyond the values is written, not drawn


def draw_errors(figure: Any, data: Mapping[str, Any]) -> None:
    """Draw each layer's own error, and the network's error after it, before and after the search."""
    axes = figure.subplots()
    positions = np.arange(len(data["before"]))
    for key, rows, color, style in (
        ("own", data["before"], "C1", "o"),
        ("total", data["before"], MUTED, "-"),
        ("total", data["after"], "C0", "-"),
    ):
        values = [_clamped(row[key]) if float(row[key]) else math.nan for row in rows]
        when = "after" if rows is data["after"] else "before"
        text = "own, alone on float32's inputs" if key == "own" else f"in the network, {when}"
        (line,) = axes.plot(positions[: len(values)], values, style, color=color, label=text, markersize=5)
        line.set_gid(f"errors-zoom-{key}-{when}")
    _draw_tolerance(axes)
    axes.set_yscale("log")
    name_powers(axes.yaxis)
    axes.set_ylabel("error, in units of the tolerance")
    _name_layers(axes, data["before"], "errors")
    figure.legend(loc="outside upper center", ncols=3)


def draw_ranges(figure: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw each layer's largest value next to the precision's range, and the number of clipped values."""
    axes = figure.subplots()
    positions = np.arange(len(rows))
    limits = [float(row["limit"]) or math.nan for row in rows]
    largest = [float(row["amax"]) or math.nan for row in rows]
    axes.plot(
        positions, largest, "o", color="C0", markersize=4, label="largest |x| in float32", gid="ranges-zoom-largest"
    )
    axes.plot(
        positions,
        limits,
        "_",
        color="C1",
        markersize=9,
        label="largest that the precision holds",
        gid="ranges-zoom-limits",
    )
    axes.set_yscale("log")
    name_powers(axes.yaxis)
    axes.set_ylabel("|x|, in the tensor's own unit")
    _name_layers(axes, rows, "ranges")
    clipped = axes.twinx()
    shares = [100 * float(row["clipped"]) for row in rows]
    bars = clipped.bar(positions, shares, color="C5", alpha=0.5, label="clipped values")
    for position, bar in enumerate(bars):
        bar.set_gid(f"ranges-zoom-clipped-{position}")
    clipped.spines["right"].set_visible(True)
    clipped.set_ylabel("clipped values, %")
    clipped.set_ylim(0, max(1.0, 1.1 * max(shares, default=0.0)))
    figure.legend(loc="outside upper center", ncols=3)


def draw_histograms(figure: Any, data: Mapping[str, Any]) -> None:
    """Draw histograms of the layers with the largest own errors."""
    chosen = sorted(data["before"], key=lambda row: -_clamped(row["own"]))[:_MAX_HISTOGRAMS]
    grid = figure.subplots(2, 3).ravel()
    for axes, row in zip(grid, chosen, strict=False):
        counts, limit = np.array(row["histogram"], float), float(row["limit"])
        width = float(row["histogram_range"]) / len(counts)
        used = int(np.flatnonzero(counts)[-1]) + 1 if counts.any() else 1
        axes.stairs(counts[:used], np.arange(used + 1) * width, fill=True, color=MUTED)
        axes.set_yscale("symlog")
        name_powers(axes.yaxis)
        if 0 < limit <= _FAR * used * width:
            axes.axvline(limit, color="C1")
        elif limit:
            axes.annotate(
                f"holds up to {limit:.4g}", (0.97, 0.9), xycoords="axes fraction", ha="right", color="C1", fontsize=8
            )
        axes.set_title(
            f"{_plain(row['name'])}\nown error {number_text(row['own'])}, clipped {float(row['clipped']):.2%}",
            fontsize=8,
        )
        axes.set_xlabel("|x|", fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in grid[::3]:
        axes.set_ylabel("values", fontsize=8)
    for axes in grid[len(chosen) :]:
        axes.set_visible(False)


def draw_front(figure: Any, data: Mapping[str, Any]) -> None:
    """The way of the search from latency to accuracy; the numbers are those of the steps."""
    axes = figure.subplots()
    way = [("start", data["latency_before_us"], data["final_before"])]
    way += [
        (str(number), step["latency_us"], step["final"])
        for number, step in enumerate(data["steps"], 1)
        if step["action"]
    ]
    way.append(("end", data["latency_us"], data["final"]))
    errors = [_clamped(error) for _, _, error in way]
    axes.plot([float(latency) for _, latency, _ in way], errors, "o-", color="C0", label="the search's way")
    for index, ((text, latency, _), error) in enumerate(zip(way, errors, strict=True)):
        end = index == len(way) - 1
        axes.annotate(
            text, (float(latency), error), xytext=(5, -11 if end else 5), textcoords="offset points", fontsize=8
        )
    axes.plot([float(data["latency_fp32_us"])], [min(*errors, 1) / 10], "s", color=INK, label="float32: no error")
    _draw_tolerance(axes)
    axes.set_yscale("log")
    name_powers(axes.yaxis)
    axes.set(xlabel="latency, µs", ylabel="error of the outputs,\nin units of the tolerance")
    axes.margins(0.08, 0.12)
    figure.legend(loc="outside upper center", ncols=2)


def _draw_tolerance(axes: Any) -> None:
    axes.axhline(1, color=INK, linewidth=1, linestyle=":")
    axes.annotate("tolerance", (1, 1), xycoords=("axes fraction", "data"), xytext=(-4, 3), textcoords="offset points",
                  ha="right", fontsize=8)  # fmt: skip


def _name_layers(axes: Any, rows: Sequence[Mapping[str, Any]], plot: str) -> None:
    """Write names below the axis, as many as there is room for, and mark what the page's zoom moves."""
    step = max(1, math.ceil(len(rows) / _MAX_NAMES))
    axes.set_xticks(range(0, len(rows), step), [_plain(row["name"]) for row in rows[::step]], rotation=90, fontsize=7)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-1, len(rows))
    axes.patch.set_gid(f"{plot}-zoom-frame")
    for number, label in enumerate(axes.get_xticklabels()):
        label.set_gid(f"{plot}-name-{number}")


def svg_of(size: tuple[float, float], draw: Callable[[Any], None]) -> str:
    """A plot as a part of a page; its text is text."""
    with drawing(*size, feature="a report") as figure:
        draw(figure)
        text = svg(figure, text=True)
    return text[text.index("<svg") :]


def _clamped(value: Any) -> float:
    number = float(value)
    return _LARGEST if number != number else min(max(number, _SMALLEST), _LARGEST)


def number_text(value: Any) -> str:
    """Four digits; a dash for what is not known."""
    return "–" if value is None else f"{float(value):.4g}"


def _plain(text: str, length: int = 28) -> str:
    return (text if len(text) <= length else f"…{text[1 - length :]}").replace("$", r"\$")
