"""Draw a pipeline as a picture, with its steps from top to bottom in the colours of their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...utils.figures import FAINT, INK, MUTED, PALETTE, drawing, save
from .pipeline import Pipeline
from .state import State, StepState

__all__ = ["draw_pipeline"]

_COLOURS: dict[State, str] = {
    "done": PALETTE[2],
    "stale": PALETTE[5],
    "never run": MUTED,
    "failed": PALETTE[1],
    "waiting for approval": PALETTE[3],
    "running": PALETTE[0],
    "to come": MUTED,
}
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 2.3, 0.5, 0.25, 0.42  # inches
_LETTERS = 30
_FIGURES = 2  # that a box shows


def draw_pipeline(pipeline: Pipeline, states: Sequence[StepState], path: Path) -> None:
    """Draw the steps with their states to a .svg, .png or .pdf, and arrows from each to those that read its outputs.

    An arrow that a way of several others implies is left out.
    """
    graph = pipeline.graph()
    rows = _rows(graph)
    depth_of = {name: number for number, row in enumerate(rows) for name in row}
    states_of = {state.step: state for state in states}
    width = max(map(len, rows)) * (_WIDTH + _GAP_X)
    height = len(rows) * (_HEIGHT + _GAP_Y) + _GAP_Y
    places = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (_WIDTH + _GAP_X) + _GAP_X) / 2
        for column, name in enumerate(row):
            places[name] = (left + column * (_WIDTH + _GAP_X), height - (number + 1) * (_HEIGHT + _GAP_Y))
    with drawing(width, height, feature="a picture of a pipeline") as figure:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
        axes.axis("off")
        for name, needed in graph.items():
            for other in _direct_predecessors(needed, graph):
                _arrow(axes, places[other], places[name], bend=depth_of[name] - depth_of[other] > 1)
        for name, (left, bottom) in places.items():
            _box(axes, left, bottom, states_of[name])
        shown_states = [state for state in _COLOURS if any(step_state.state == state for step_state in states)]
        for number, state in enumerate(shown_states):
            axes.text(0.12 + 1.1 * number, 0.12, f"■ {state}", color=_COLOURS[state], fontsize=8, va="center")
        save(figure, path)


def _rows(graph: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Rows of steps by the longest path to them, ordered by the steps above, so that few arrows cross."""
    depth: dict[str, int] = {}
    for name, needed in graph.items():  # each after those that it needs
        depth[name] = max((depth[predecessor] + 1 for predecessor in needed), default=0)
    rows: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    place: dict[str, float] = {}
    for name in sorted(graph, key=depth.__getitem__):
        rows[depth[name]].append(name)
    for row in rows:
        row.sort(key=lambda name: sum(place[predecessor] for predecessor in graph[name]) / max(1, len(graph[name])))
        place |= {name: (number + 0.5) / len(row) for number, name in enumerate(row)}
    return rows


def _direct_predecessors(needed: tuple[str, ...], graph: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The direct predecessors of a step: those that no other predecessor needs."""
    implied: set[str] = set()
    waiting = [predecessor for other in needed for predecessor in graph[other]]
    while waiting:
        predecessor = waiting.pop()
        if predecessor not in implied:
            implied.add(predecessor)
            waiting += graph[predecessor]
    return [predecessor for predecessor in needed if predecessor not in implied]


def _arrow(axes: Any, begin: tuple[float, float], end: tuple[float, float], *, bend: bool) -> None:
    half = _WIDTH / 2
    bent = {"connectionstyle": f"arc3,rad={0.35 if bend else 0}"}  # around the steps between
    axes.annotate(
        "",
        xy=(end[0] + half, end[1] + _HEIGHT),
        xytext=(begin[0] + half, begin[1]),
        arrowprops={"arrowstyle": "-|>", "color": MUTED, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0, **bent},
        zorder=1,
    )


def _box(axes: Any, left: float, bottom: float, state: StepState) -> None:
    from matplotlib.patches import FancyBboxPatch  # which `drawing` has asked for

    colour = _COLOURS[state.state]
    hiding: dict[str, Any] = {"facecolor": "white", "edgecolor": FAINT, "zorder": 2}  # the arrows behind the box
    shown: dict[str, Any] = {"facecolor": f"{colour}28", "edgecolor": colour, "linewidth": 1.2, "zorder": 3}
    for style in (hiding, shown):
        box = FancyBboxPatch((left, bottom), _WIDTH, _HEIGHT, boxstyle="round,pad=0,rounding_size=0.06", **style)
        axes.add_patch(box)
    name = state.step if len(state.step) <= _LETTERS else f"{state.step[: _LETTERS - 1]}…"
    figures = [f"{key.rpartition('.')[2]} {value:.4g}" for key, value in list(state.figures.items())[:_FIGURES]]
    below = "   ".join([state.state if not state.seconds else f"{state.seconds:.1f} s", *figures])
    below = below if len(below) <= _LETTERS + 8 else f"{below[: _LETTERS + 7]}…"
    text = {"ha": "left", "va": "center", "color": INK, "zorder": 4}
    axes.text(left + 0.1, bottom + 0.33, name, fontsize=9, **text)
    axes.text(left + 0.1, bottom + 0.14, below, fontsize=7, **text)
