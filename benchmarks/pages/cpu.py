"""YOLOv2 on a CPU, and conversions from darknet's files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .chart import Chart, Dot, dots
from .machine import machine_text
from .table import left, right, table

__all__ = ["conversion", "latency"]

_LATENCY = (
    left("runner", "runner"), left("precision", "precision"), right("median ms", lambda row: row["host_us"] / 1e3, ".1f"),
    right("min ms", lambda row: row["host_least_us"] / 1e3, ".1f"), right("baseline beside it, median ms", "baseline_ms", ".1f"),
    right("time / baseline", "over_baseline", ".3f"), right("times darknet's speed", "over_darknet", ".1f"),
    right("time / baseline, median of pairs", "pairs", ".3f"),  # of old records
    right("error of the head", lambda row: "other output" if row["error"] is None else f"{row['error']:.1e}"),
)  # fmt: skip
_CONVERSION = (
    left("whole process", "command"), left("median s", lambda row: f"{row['median_s']:.2f}"),
    left("min s", lambda row: f"{row['min_s']:.2f}"), left("peak memory MB", lambda row: f"{row['bytes'] / 1e6:.0f}"),
    left("memory / weights file", lambda row: f"{row['over_weights']:.2f}"),
)  # fmt: skip


def latency(name: str, record: dict[str, Any]) -> Iterator[str | Chart]:
    """One row per runner, slowest first. Each ratio is the quotient of two medians of the table."""
    rows = sorted(record["rows"], key=lambda row: -row["host_us"])
    darknet = next((row["host_us"] for row in rows if row["runner"].startswith("darknet")), None)
    for row in rows:
        row["over_darknet"] = darknet and darknet / row["host_us"]
        if "baseline_ms" in row:
            row["over_baseline"] = row["host_us"] / 1e3 / row["baseline_ms"]
    yield machine_text(record)
    yield table(_LATENCY, rows)
    yield dots(
        f"benchmark-{name}", "latency", f"YOLOv2-VOC, {record['processor']}, Python {record['python']}",
        "median latency of one 416 x 416 image, ms; logarithmic axis; blue: pytrtplugins",
        [Dot(f"{row['runner']}, {row['precision']}", row["host_us"] / 1e3, _label(row), row["runner"].startswith("pytrt"))
         for row in rows],
    )  # fmt: skip


def _label(row: dict[str, Any]) -> str:
    speed = "" if row["over_darknet"] is None else f", {row['over_darknet']:.1f} x darknet's speed"
    return f"{row['host_us'] / 1e3:.{1 if row['host_us'] < 1e5 else 0}f} ms{speed}"


def conversion(name: str, record: dict[str, Any]) -> Iterator[str]:
    """Time and memory of each command."""
    yield machine_text(record)
    yield table(_CONVERSION, record["rows"])
