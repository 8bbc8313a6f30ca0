"""Single operators beside PyTorch's, the slowest of ours beside its peer first, and what was to be reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .chart import Chart, Dot, dots
from .race import earlier_rows, gpu_text, left_out
from .runners import NAME, TORCH_COMPILED
from .table import left, right, table

__all__ = ["operators"]

TIMES, LONG_US, ALLOWANCE_US = 1.2, 20.0, 10.0
"""Ours may take so many times PyTorch's time; and this much on top of it where PyTorch takes less than `LONG_US`."""
SHOWN = 40
Row = Mapping[str, Any]
Rows = Sequence[Row]


def operators(name: str, record: dict[str, Any]) -> Iterator[str | Chart]:
    """The goals, the table, and a chart of the slowest."""
    rows = [row for row in record["rows"] if "us" in row]
    fused = {_label(row): row for row in rows if row.get("peer") == TORCH_COMPILED}
    plain = [row for row in rows if row.get("peer") != TORCH_COMPILED]
    beside = [{**row, "compiled_us": fused[_label(row)]["peer_us"]} if _label(row) in fused else row for row in plain]
    timed = sorted(beside, key=_ratio, reverse=True)
    yield gpu_text(record)
    yield _goals(timed, fused)
    yield table(_COLUMNS, timed)
    if timed:
        yield _chart(name, timed, record["gpu"]["gpu"])
    if failed := [row for row in record["rows"] if "failure" in row]:
        yield "Failed:\n\n" + "\n".join(f"- {_label(row)}: {row['failure']}" for row in failed)
    yield left_out(record)
    yield earlier_rows(record)


def _ratio(row: Row) -> float:
    """Our time over PyTorch's: the quotient of the medians."""
    return float(row["us"] / row["peer_us"])


def _is_slow(row: Row) -> bool:
    allowance = 0.0 if row["peer_us"] >= LONG_US else ALLOWANCE_US
    return bool(row["us"] > TIMES * row["peer_us"] + allowance)


def _goals(rows: Rows, fused: Mapping[str, Row]) -> str:
    """How many rows meet each goal, as Markdown."""
    goals = (
        ("in the CUDA graph", lambda row: not row["outside"]),
        ("in kernels of this engine, not array by array", lambda row: not row["arrays"] and not row["outside"]),
        (
            f"at most {TIMES:g} times PyTorch's time, and {ALLOWANCE_US:g} µs more where that is below {LONG_US:g} µs",
            lambda row: not _is_slow(row),
        ),
        ("at most PyTorch's time", lambda row: _ratio(row) <= 1),
    )
    lines = ["| goal | of rows | measured |", "|---|---:|---:|"]
    lines += [f"| {what} | {len(rows)} | {sum(map(met, rows))} |" for what, met in goals]
    if fused:
        met = sum(_ratio(row) <= 1 for row in fused.values())
        lines += [f"| at most torch.compile's time, where it makes kernels | {len(fused)} | {met} |"]
    return "\n".join(lines)


def _place(row: Row) -> str:
    if row["outside"]:
        return "outside"
    return "array by array" if row["arrays"] else "in the graph"


def _precision(row: Row) -> str:
    """The precision of ours, and PyTorch's where it is another."""
    return f"{row['precision']}, PyTorch {row['peer_precision']}" if "peer_precision" in row else str(row["precision"])


_COLUMNS = (
    left("operator", "operator"), left("form", "form"), left("size", "size"), left("precision", _precision),
    right("ours µs", "us", ",.1f"), right("PyTorch µs", "peer_us", ",.1f"),
    right("ours / PyTorch", lambda row: f"**{_ratio(row):.2f}**" if _is_slow(row) else f"{_ratio(row):.2f}"),
    right("torch.compile µs", "compiled_us", ",.1f"),
    left("runs", _place), right("steps", "steps", "d"), right("PyTorch's kernels", "peer_kernels", "d"),
    right("build s", "build_s", ".1f"), right("error", "error", ".0e"), right("PyTorch's error", "peer_error", ".0e"),
    right("error beside the same codes", "codes_error", ".0e"),
)  # fmt: skip


def _label(row: Row) -> str:
    return f"{row['operator']}, {row['form']}, {row['size']}, {row['precision']}"


def _chart(name: str, rows: Rows, gpu: str) -> Chart:
    shown = [
        Dot(_label(row), _ratio(row), f"{row['us']:,.1f} and {row['peer_us']:,.1f} µs", not _is_slow(row))
        for row in rows[:SHOWN]
    ]
    title = f"The {len(shown)} operators that are slowest beside PyTorch's, {gpu}"
    axis = f"times PyTorch's time in a CUDA graph, {NAME}; grey: more than the goal allows"
    return dots(f"benchmark-{name}", "times PyTorch's time", title, axis, shown[::-1])
