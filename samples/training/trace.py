"""Write the stage clock's counts as a trace for a browser and as a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.figures import INK, PALETTE, drawing, save

from .clock import Clock

__all__ = ["draw_stages", "write_trace"]


def write_trace(path: Path, clock: Clock, *, rank: int = 0) -> None:
    """Write each piece of work as Chrome's trace events, which chrome://tracing and ui.perfetto.dev show, one row a thread."""
    threads = {name: number for number, name in enumerate(dict.fromkeys(span.thread for span in clock.spans))}
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}]
    events += [
        {"name": "thread_name", "ph": "M", "pid": rank, "tid": number, "args": {"name": name}}
        for name, number in threads.items()
    ]
    events += [
        {
            "name": span.stage,
            "ph": "X",
            "pid": rank,
            "tid": threads[span.thread],
            "ts": round(span.begin * 1e6, 1),
            "dur": round((span.end - span.begin) * 1e6, 1),
            "args": {"items": span.items},
        }
        for span in clock.spans
    ]
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"dropped": clock.dropped}}
    write_atomic(path, json.dumps(content).encode())


def draw_stages(path: Path, clock: Clock) -> None:
    """Draw how busy each stage was over the run, and the share of the time that steps waited for data."""
    laps = [lap for lap in clock.laps if lap.steps]
    names = list(dict.fromkeys(stage.name for lap in laps for stage in lap.stages))
    ends = [lap.end for lap in laps]
    with drawing(8, 3.6) as figure:
        axes = figure.subplots()
        for i, name in enumerate(names):
            values = [100 * lap.occupancy(name) for lap in laps]
            axes.plot(ends, values, "-o", color=PALETTE[i % len(PALETTE)], markersize=3, label=name)
        axes.plot(ends, [100 * lap.share for lap in laps], "--s", color=INK, markersize=3, label="data_time")
        axes.set(
            xlabel="seconds",
            ylabel="share of the time, %",
            title="How busy each stage is; data_time: how long steps waited",
        )
        axes.set_ylim(0, 105)
        axes.grid(axis="y")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        save(figure, path)
