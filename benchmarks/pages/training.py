"""Training: steps, loaders, and the modes in which ranks share variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .chart import Chart, Dot, dots
from .machine import machine_text
from .table import MISSING, left, right, table

__all__ = ["loaders", "modes", "steps"]

_KERNELS = 13
Row = dict[str, Any]


def steps(name: str, record: Row) -> Iterator[str | Chart]:
    """The rows of each network, fastest first, and the longest kernels of the fastest."""
    rows = sorted(_measured(record), key=lambda row: (row["network"], -row["rate"]))
    yield machine_text(record)
    yield table(_STEPS, rows)
    yield _left_out(record)
    fastest = {row["network"]: row for row in reversed(rows) if row["own"] and row["kernels"]}
    for row in fastest.values():
        yield f"The longest kernels of {row['network']}, {row['name']}:"
        yield table(_STEP_KERNELS, [dict(zip("nmc", kernel, strict=True)) for kernel in row["kernels"][:_KERNELS]])
    yield from _chart(record, name, "photos/s", _bars(record, "network", "name"))


def modes(name: str, record: Row) -> Iterator[str | Chart]:
    """The rows, in the order in which they ran."""
    yield machine_text(record)
    yield table(_MODES, _measured(record))
    yield _left_out(record)
    yield from _chart(record, name, "photos/s", _bars(record, "network", "name", "ranks"))


def loaders(name: str, record: Row) -> Iterator[str | Chart]:
    """The rows, fastest first; time is saved in comparison with the DataLoader without workers."""
    rows = sorted(_measured(record), key=lambda row: -row["rate"])
    slow = next((row["step_ms"] for row in rows if row["name"] == "DataLoader, 0 workers"), None)
    for row in rows:
        row["saved"] = slow and 1 - row["step_ms"] / slow
    note = " ".join(filter(None, [f"Photos: {record['photos']}. Step: {record['step']}.", record["note"]]))
    yield machine_text({**record, "note": note})
    yield table(_LOADERS, rows)
    yield "\n".join(f"- Not measured: {row['name']}: {row['reason']}" for row in record["rows"] if row["reason"])
    bars = [
        Dot(row["name"], row["rate"], f"{row['rate']:,.0f} photos/s, data_time {row['share']:.1%}", row["name"][:10] != "DataLoader")
        for row in rows
    ]  # fmt: skip
    yield from _chart(record, name, "photos a second", bars)


def _measured(record: Row) -> list[Row]:
    return [row for row in record["rows"] if not row["reason"]]


def _bars(record: Row, *names: str) -> list[Dot]:
    return [
        Dot(", ".join(str(row[name]) for name in names), row["rate"], f"{row['rate']:,.0f}", row["own"])
        for row in _measured(record)
    ]


def _chart(record: Row, name: str, unit: str, bars: Sequence[Dot]) -> Iterator[Chart]:
    if len(bars) > 1:
        title, axis = f"{record['subject']}; {record['processor']}", f"{unit}; logarithmic axis; blue: this project's"
        yield dots(
            f"training-{name}", f"{record['subject']}, {unit}", title, axis, sorted(bars, key=lambda bar: bar.value)
        )


def _left_out(record: Row) -> str:
    """Which rows have no figures, and why."""
    lines = [f"- {row['network']}, {row['name']}: {row['reason']}" for row in record["rows"] if row["reason"]]
    return "\n".join(["Left out:", "", *lines]) if lines else ""


def _weights(row: Row) -> str:
    return f"{row['spread']:.1e} apart" if row["spread"] else "equal" if row["ranks"] > 1 else MISSING


def _listed(name: str, form: str) -> Any:
    """A cell that lists parts with a figure each."""
    return lambda row: ", ".join(f"{part} {value:{form}}" for part, value in row[name].items()) or MISSING


_STEPS = (
    left("network", "network"), left("step", "name"), right("batch", "batch"), right("photos/s", "rate", ",.0f"),
    right("ms", "step_ms", ".2f"), left("its parts, ms", _listed("parts", ".2f")), right("host ms", "host_ms", ".2f"),
    right("memory GB", "memory_gb", ".1f"), right("ready s", "ready_s", ".0f"),
    right("first losses against FP32", "difference", ".1e"),
)  # fmt: skip
_STEP_KERNELS = (
    left("kernel", lambda row: f"`{row['n'][:90]}`"), right("ms a step", "m", ".3f"), right("launches a step", "c", "g"),
)  # fmt: skip
_MODES = (
    left("network", "network"), left("variables", "name"), right("ranks", "ranks"), right("photos/s", "rate", ",.0f"),
    right("times one rank", lambda row: row["scaling"] or None, ".3f"), right("ms", "step_ms", ".2f"),
    right("memory GB of a rank", "memory_gb", ".1f"), right("first losses", "difference", ".1e"),
    right("weights of the ranks", _weights),
)  # fmt: skip
_LOADERS = (
    left("loader", "name"), right("photos/s", "rate", ",.0f"), right("step ms", "step_ms", ".2f"),
    right("data_time ms", "data_ms", ".2f"), right("share", "share", ".1%"), right("time saved", "saved", ".0%"),
    right("photos/s alone", "alone", ",.0f"), right("first batch s", "ready_s", ".1f"), left("busy", _listed("busy", ".0%")),
    left("batches", "same"),
)  # fmt: skip
