"""Networks that others made, on a GPU: a table and a chart for each batch, and what was to be reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytrtplugins.utils.figures import INK

from .chart import Chart
from .race import earlier_rows, gpu_text, left_out
from .runners import NAME, ONNXRUNTIME, TORCH_COMPILED, TORCH_EAGER, TORCH_GRAPH, TORCH_TUNED
from .table import figure, left, right
from .table import table as markdown

__all__ = ["zoo"]

PEERS = {TORCH_GRAPH: "C1", TORCH_EAGER: "C5", TORCH_COMPILED: "C4", TORCH_TUNED: "C3", ONNXRUNTIME: "C2"}
"""Whom our FP16 is compared with; each peer has one colour."""
LEAST, LEAST_MEAN = 1.0, {1: 1.5, 32: 1.2}
MOST = (
    ("build_s", "whose first build takes, in seconds,", 90),
    ("again_s", "whose build from the cache takes, in seconds,", 3),
    ("error", "whose error beside PyTorch's FP32 is", 1e-2),
)
"""Fields of a row, and the largest value that was to be reached."""


@dataclass
class Entry:
    """One network with one batch.

    Attributes:
        network: Its name.
        batch: Images of a run.
        peers: Microseconds of each peer, medians.
        own: The row of our FP16; what is missing was not measured.
        int8: The row of our INT8, likewise.
        failures: Errors, by the runner and precision that had them.
    """

    network: str
    batch: int
    peers: dict[str, float] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    int8: Mapping[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def speeds(self) -> dict[str, float]:
        """How many times faster our FP16 is, by peer: the quotient of the medians."""
        return {peer: time / self.own["us"] for peer, time in self.peers.items()} if "us" in self.own else {}

    @property
    def int8_speed(self) -> float | None:
        """How many times faster INT8 is than FP16: the quotient of the medians."""
        return None if self.beside is None else self.beside / self.int8["us"]

    @property
    def beside(self) -> float | None:
        """Microseconds of the FP16 that ran in turns with INT8; where that is not known, of the row of FP16, perhaps of another day."""
        return self.int8.get("peer_us", self.own.get("us")) if "us" in self.int8 else None

    @property
    def missed(self) -> bool:
        """Whether a peer is faster than our FP16, or our FP16 failed."""
        return f"{NAME}, FP16" in self.failures or min(self.speeds.values(), default=LEAST) < LEAST


def entries(rows: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Rows of the zoo → one entry for each network and batch, by batch and in the order in which networks come first."""
    found: dict[tuple[int, str], Entry] = {}
    order: dict[str, int] = {}
    for row in rows:
        order.setdefault(row["network"], len(order))
        entry = found.setdefault((row["batch"], row["network"]), Entry(row["network"], row["batch"]))
        runner = f"{row['runner']}, {row['precision']}"
        if "failure" in row:
            entry.failures[runner] = row["failure"]
        if row["runner"] != NAME:
            if "us" in row:
                entry.peers[row["runner"]] = row["us"]
        elif row["precision"] == "INT8":
            entry.int8 = row
        else:
            entry.own = row
            if "peer_us" in row:
                entry.peers[row["peer"]] = row["peer_us"]
    return sorted(found.values(), key=lambda entry: (entry.batch, order[entry.network]))


def mean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def goals_table(found: Sequence[Entry]) -> str:
    """What was to be reached, beside what was measured, as Markdown."""
    lines = ["| goal | at | measured | |", "|---|---:|---:|---|"]
    for batch in sorted({entry.batch for entry in found}):
        here = [entry for entry in found if entry.batch == batch]
        unbeaten = {entry.network: not entry.missed for entry in here}
        quantized = {entry.network: entry.int8_speed > 1 for entry in here if entry.int8_speed is not None}
        lines.append(_all_of(f"FP16, batch {batch}, networks on which no peer is faster", unbeaten))
        lines.append(_all_of(f"INT8, batch {batch}, networks on which it is faster than FP16", quantized))
        if batch in LEAST_MEAN:
            lines += [_compiled(batch, here, peer) for peer in (TORCH_COMPILED, TORCH_TUNED)]
    for field_name, what, limit in MOST:
        held = {_name(entry): entry.own[field_name] <= limit for entry in found if field_name in entry.own}
        lines.append(_all_of(f"FP16, all batches, networks {what} at most {limit:g}", held))
    return "\n".join(lines)


def _name(entry: Entry) -> str:
    return entry.network if entry.batch == 1 else f"{entry.network} with batch {entry.batch}"


def _all_of(what: str, met: Mapping[str, bool]) -> str:
    """A goal that every network should meet; those that miss it are named."""
    if not met:
        return f"| {what} | all | – | not measured |"
    missed = [network for network, holds in met.items() if not holds]
    verdict = f"missed: {', '.join(missed)}" if missed else "met"
    return f"| {what} | {len(met)} | {len(met) - len(missed)} | {verdict} |"


def _compiled(batch: int, found: Sequence[Entry], peer: str) -> str:
    """The goal for the mean speed against PyTorch's compiler."""
    limit = LEAST_MEAN[batch]
    speeds = [entry.speeds[peer] for entry in found if peer in entry.speeds]
    what, measured = f"FP16, batch {batch}, times the speed of {peer}, geometric mean", mean(speeds)
    if measured is None:
        return f"| {what} | {limit} x | – | not measured |"
    verdict = "met" if measured >= limit else "missed"
    if len(speeds) < len(found):
        verdict = f"{verdict} on the {len(speeds)} of {len(found)} networks that were measured with it"
    return f"| {what} | {limit} x | {measured:.2f} | {verdict} |"


def table(found: Sequence[Entry], has_beside: bool = True) -> str:
    """The networks of one batch as Markdown, with the geometric means; a speed below 1 is bold."""
    peers = [peer for peer in PEERS if any(peer in entry.speeds for entry in found)]
    columns = [
        left("network", "network"), right("FP16 µs", "us", ",.1f"),
        *(each for peer in peers for each in (right(f"{peer} µs", f"{peer} µs", ",.1f"), right("times its speed", f"{peer} speed"))),
        right("INT8 µs", "int8_us", ",.1f"), *[right("FP16 beside it µs", "beside", ",.1f")] * has_beside,
        right("FP16 / INT8", "int8_speed", ".2f"), right("kernels", "kernels", "d"), right("steps", "steps", "d"),
        right("by arrays", lambda row: _operators(row["arrays"])), right("outside the graph", lambda row: _operators(row["outside"])),
        right("memory MB", lambda row: None if row["bytes"] is None else row["bytes"] / 1e6, ".1f"),
        right("build s: first, again", lambda row: _figures(row, ".1f", "build_s", "again_s")),
        right("error FP32, FP16, INT8", lambda row: _figures(row, ".0e", "error_fp32", "error", "int8_error")),
    ]  # fmt: skip
    text = markdown(columns, [_cells(entry, peers) for entry in found])
    means = [_speed(mean(entry.speeds[peer] for entry in found if peer in entry.speeds)) for peer in peers]
    int8 = figure(mean(entry.int8_speed for entry in found if entry.int8_speed is not None), ".2f")
    cells = [
        "geometric mean",
        "",
        *(text for each in means for text in ("", each)),
        *[""] * (1 + has_beside),
        int8,
        *[""] * 7,
    ]
    return f"{text}\n| {' | '.join(cells)} |"


def _cells(entry: Entry, peers: Sequence[str]) -> dict[str, Any]:
    names = ("us", "kernels", "steps", "arrays", "outside", "bytes", "build_s", "again_s", "error_fp32", "error")
    return {
        "network": entry.network, **{name: entry.own.get(name) for name in names}, "int8_us": entry.int8.get("us"),
        "int8_error": entry.int8.get("error"), "int8_speed": entry.int8_speed, "beside": entry.beside,
        **{f"{peer} µs": entry.peers.get(peer) for peer in peers},
        **{f"{peer} speed": _speed(entry.speeds.get(peer)) for peer in peers},
    }  # fmt: skip


def failures(found: Sequence[Entry]) -> str:
    """Errors of networks, as a list."""
    return "\n".join(
        f"- {entry.network}, batch {entry.batch}, {runner}: {error}"
        for entry in found
        for runner, error in entry.failures.items()
    )


def chart(name: str, found: Sequence[Entry], gpu: str) -> Chart:
    """How many times faster our FP16 is than each peer with one batch, the smallest lead on top."""
    shown = sorted((entry for entry in found if entry.speeds), key=lambda entry: -min(entry.speeds.values()))
    batch = shown[0].batch
    title = f"Networks that others made, FP16, batch {batch}, {gpu}"

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        bars = _draw(axes, shown)
        axes.set_xlabel(f"times the speed of each peer, {NAME} FP16; the peer is faster left of the line")
        canvas.suptitle(title, fontsize=10)
        known = [peer for peer in PEERS if peer in bars]
        canvas.legend([bars[peer] for peer in known], known, loc="outside lower center", ncols=len(known))

    labels = [
        title,
        *(text for entry in shown for text in (entry.network, *(f"{s:.2f}" for s in entry.speeds.values()))),
    ]
    text = f"times the speed of each peer, batch {batch}"
    return Chart(
        f"benchmark-{name}" if batch == 1 else f"benchmark-{name}-{batch}", text, 0.34 * len(shown) + 1.9, draw, labels
    )


def _draw(axes: Any, here: Sequence[Entry]) -> dict[str, Any]:
    """Draw the bars; gives those of each peer."""
    peers = [peer for peer in PEERS if any(peer in entry.speeds for entry in here)]
    drawn, height = {}, 0.75 / max(2, len(peers))
    for number, peer in enumerate(peers):
        rows = [(place, entry.speeds[peer]) for place, entry in enumerate(here) if peer in entry.speeds]
        places = [place + height * (number - (len(peers) - 1) / 2) for place, _ in rows]
        drawn[peer] = axes.barh(places, [speed for _, speed in rows], height, color=PEERS[peer])
        axes.bar_label(drawn[peer], [f" {speed:.2f}" for _, speed in rows], fontsize=6)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(here)), [entry.network for entry in here])
    axes.set_ylim(-0.6, len(here) - 0.4)
    return drawn


def zoo(name: str, record: dict[str, Any]) -> Iterator[str | Chart]:
    """All tables and charts of a run."""
    found = entries(record["rows"])
    yield gpu_text(record)
    yield goals_table(found)
    has_beside = any("peer_us" in entry.int8 for entry in found)
    for batch in sorted({entry.batch for entry in found}):
        here = [entry for entry in found if entry.batch == batch]
        yield f"### Batch {batch}"
        yield table(here, has_beside)
        if any(entry.speeds for entry in here):
            yield chart(name, here, record["gpu"]["gpu"])
    if failed := failures(found):
        yield f"Failed:\n\n{failed}"
    yield left_out(record)
    yield earlier_rows(record)


def _figures(row: Mapping[str, Any], form: str, *names: str) -> str:
    return ", ".join(figure(row[name], form) for name in names)


def _speed(value: float | None) -> str:
    text = figure(value, ".2f")
    return text if value is None or value >= LEAST else f"**{text}**"


def _operators(counts: Mapping[str, int] | None) -> str | None:
    if counts is None:
        return None
    names = ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))
    return f"{sum(counts.values())}: {names}" if names else "0"
