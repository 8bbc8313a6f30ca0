"""Charts of a report in HTML and SVG: when each step ran, and a figure over the last runs."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from .record import RunRecord, StepRecord

__all__ = ["figure_chart", "seconds_text", "step_times"]

_WIDTH, _HEIGHT, _EDGE = 300, 80, 6  # of a figure's chart, in its own units
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_MOST_TICKS = 6
_ROOM = 16  # percent of the width that a time needs beside its bar


def seconds_text(seconds: float) -> str:
    """A time as people read it, such as ``2 min 05 s``."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def step_times(run: RunRecord) -> str:
    """A Gantt chart: a row for each step, with a bar for the time in which it ran."""
    ends = [moment for step in run.steps for moment in (step.begin, step.end) if moment is not None]
    end = max([run.begin, *([run.end] if run.end is not None else []), *filter(math.isfinite, ends)])
    span = max(end - run.begin, 0.1)
    ticks = _ticks(span)
    lines = "".join(f'<i style="left:{100 * at / span:.2f}%"></i>' for at in ticks)
    marks = "".join(_tick(at, span) for at in ticks)
    rows = [
        f'<div class="name">{html.escape(step.name)}</div><div class="track">{lines}{_bar(step, run.begin, span)}</div>'
        for step in run.steps
    ]
    return f'<div class="gantt">{"".join(rows)}<div></div><div class="axis">{marks}</div></div>'


def figure_chart(name: str, values: Sequence[float]) -> str:
    """A line chart of a figure over the last runs, oldest first; empty if it never changed."""
    finite = [(place, value) for place, value in enumerate(values) if math.isfinite(value)]
    low, high = (function((value for _, value in finite), default=0.0) for function in (min, max))
    if low == high:
        return ""
    across = (_WIDTH - 2 * _EDGE) / (len(values) - 1)
    points = [
        (_EDGE + place * across, _HEIGHT - _EDGE - (value - low) / (high - low) * (_HEIGHT - 2 * _EDGE))
        for place, value in finite
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in points)
    return (
        f'<figure><figcaption><b>{html.escape(name)}</b> {finite[-1][1]:.6g}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<polyline points="{line}"/>{dots}</svg><small>{low:.6g} to {high:.6g} in {len(finite)} runs</small></figure>'
    )


def _bar(step: StepRecord, begin: float, span: float) -> str:
    """The bar of a step, with its duration on the side with more room."""
    if step.reused or step.begin is None:
        note = "reused" if step.reused else step.state
        return f'<em class="note">{note}</em>'
    at, end = (
        _share(moment, begin, span) for moment in (step.begin, step.end if step.end is not None else begin + span)
    )
    text = seconds_text(step.seconds) if step.end is not None else "not finished"
    inside = max(at, 100 - end) < _ROOM
    side = f"left:{at:.2f}%" if inside else f"right:{100 - at:.2f}%" if at > 100 - end else f"left:{end:.2f}%"
    kind = "failed" if step.state == "failed" else "waiting" if step.state != "done" else "done"
    return (
        f'<b class="{kind}" style="left:{at:.2f}%;width:{max(end - at, 0):.2f}%"></b>'
        f'<em class="{"inside" if inside else "time"}" style="{side}">{text}</em>'
    )


def _tick(at: float, span: float) -> str:
    share = 100 * at / span
    side = " class=first" if not at else " class=last" if share > 100 - _ROOM / 2 else ""
    return f'<span{side} style="left:{share:.2f}%">{seconds_text(at) if at else "0"}</span>'


def _share(at: float, begin: float, span: float) -> float:
    share = 100 * (at - begin) / span
    return min(100.0, max(0.0, share)) if math.isfinite(share) else 0.0


def _ticks(span: float) -> list[float]:
    """Round times from the beginning to the end."""
    step = next((candidate for candidate in _STEPS if span / candidate <= _MOST_TICKS), span / _MOST_TICKS)
    return [number * step for number in range(int(span / step) + 1)]
