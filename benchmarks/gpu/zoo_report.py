"""Records of the zoo → a page with a chart, a table for each batch, and what was to be reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import put_section
from pytrtplugins.utils.files import atomic_path, write_atomic

from .runners import NAME, ONNXRUNTIME, TORCH_GRAPH, TORCH_TUNED

PEERS = {TORCH_GRAPH: "tab:orange", TORCH_TUNED: "tab:red", ONNXRUNTIME: "tab:blue"}
"""Whom our FP16 is compared with; each peer has one colour."""
LEAST, LEAST_MEAN = 1.0, 1.5
TITLE = "# Networks that others made, on a GPU\n\nHow they are measured: [benchmarks.md](benchmarks.md#networks-that-others-made).\n"


@dataclass
class Entry:
    """One network with one batch.

    Attributes:
        network: Its name.
        batch: Images of a run.
        speeds: How many times faster our FP16 is, by peer.
        own: The row of our FP16; what is missing was not measured.
        int8: The row of our INT8, likewise.
        failures: Errors, by the runner and precision that had them.
    """

    network: str
    batch: int
    speeds: dict[str, float] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    int8: Mapping[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def missed(self) -> bool:
        """Whether a peer is faster than our FP16, or our FP16 failed."""
        return f"{NAME}, FP16" in self.failures or min(self.speeds.values(), default=LEAST) < LEAST


def entries(rows: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Rows of the zoo → one entry for each network and batch, by batch and in the order of the rows."""
    found: dict[tuple[int, str], Entry] = {}
    for row in rows:
        entry = found.setdefault((row["batch"], row["network"]), Entry(row["network"], row["batch"]))
        runner = f"{row['runner']}, {row['precision']}"
        if "failure" in row:
            entry.failures[runner] = row["failure"]
        if row["runner"] != NAME:
            if "speed" in row:
                entry.speeds[row["runner"]] = row["speed"]
        elif row["precision"] == "INT8":
            entry.int8 = row
        else:
            entry.own = row
            if "speed" in row:
                entry.speeds[row["peer"]] = row["speed"]
    return sorted(found.values(), key=lambda entry: entry.batch)


def mean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def goals_table(found: Sequence[Entry]) -> str:
    """What was to be reached, beside what was measured, as Markdown."""
    lines = ["| goal | at | measured | |", "|---|---:|---:|---|"]
    for batch in sorted({entry.batch for entry in found}):
        here = [entry for entry in found if entry.batch == batch]
        missed = [entry.network for entry in here if entry.missed]
        verdict = f"missed: {', '.join(missed)}" if missed else "met"
        what = f"FP16, batch {batch}, networks on which no peer is faster"
        lines.append(f"| {what} | {len(here)} | {len(here) - len(missed)} | {verdict} |")
    tuned = mean(entry.speeds[TORCH_TUNED] for entry in found if entry.batch == 1 and TORCH_TUNED in entry.speeds)
    what = f"FP16, batch 1, times the speed of {TORCH_TUNED}, geometric mean"
    if tuned is None:
        lines.append(f"| {what} | {LEAST_MEAN} x | – | not measured |")
    else:
        lines.append(f"| {what} | {LEAST_MEAN} x | {tuned:.2f} | {'met' if tuned >= LEAST_MEAN else 'missed'} |")
    return "\n".join(lines)


def table(found: Sequence[Entry]) -> str:
    """The networks of one batch as Markdown, with the geometric means; a speed below 1 is bold."""
    peers = [peer for peer in PEERS if any(peer in entry.speeds for entry in found)]
    head = [
        "network", "FP16 µs", *(f"times the speed of {peer}" for peer in peers), "INT8 µs", "FP16 / INT8", "kernels",
        "steps", "by arrays", "outside the graph", "memory MB", "build s: first, again", "error FP32, FP16, INT8",
    ]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for entry in found:
        own, int8 = entry.own, entry.int8
        builds = ", ".join(_number(own.get(name), ".1f") for name in ("build_s", "again_s"))
        errors = ", ".join(
            _number(each, ".0e") for each in (own.get("error_fp32"), own.get("error"), int8.get("error"))
        )
        cells = [
            entry.network, _number(own.get("us"), ",.1f"), *(_speed(entry.speeds.get(peer)) for peer in peers),
            _number(int8.get("us"), ",.1f"), _number(int8.get("speed"), ".2f"), _number(own.get("kernels"), "d"),
            _number(own.get("steps"), "d"), *(_operators(own.get(name)) for name in ("arrays", "outside")),
            _number(None if own.get("bytes") is None else own["bytes"] / 1e6, ".1f"), builds, errors,
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    means = [mean(entry.speeds[peer] for entry in found if peer in entry.speeds) for peer in peers]
    int8_mean = mean(entry.int8["speed"] for entry in found if "speed" in entry.int8)
    cells = ["geometric mean", "", *map(_speed, means), "", _number(int8_mean, ".2f"), *[""] * 7]
    lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def failures(found: Sequence[Entry]) -> str:
    """Errors of networks, as a list."""
    return "\n".join(
        f"- {entry.network}, batch {entry.batch}, {runner}: {error}"
        for entry in found
        for runner, error in entry.failures.items()
    )


def chart(found: Sequence[Entry], path: Path, gpu: str) -> None:
    """A panel for each batch: how many times faster our FP16 is than each peer, the smallest lead on top."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [entry for entry in found if entry.speeds]
    batches = sorted({entry.batch for entry in shown})
    heights = [sum(entry.batch == batch for entry in shown) for batch in batches]
    figure, panels = pyplot.subplots(
        len(batches), figsize=(9, 0.3 * sum(heights) + 0.9 * len(batches) + 0.8), height_ratios=heights,
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for batch, axes in zip(batches, panels[:, 0], strict=True):
        here = sorted((entry for entry in shown if entry.batch == batch), key=lambda entry: -min(entry.speeds.values()))
        peers = [peer for peer in PEERS if any(peer in entry.speeds for entry in here)]
        for number, peer in enumerate(peers):
            rows = [(place, entry.speeds[peer]) for place, entry in enumerate(here) if peer in entry.speeds]
            places = [place + 0.25 * (number - (len(peers) - 1) / 2) for place, _ in rows]
            bars = axes.barh(places, [speed for _, speed in rows], 0.25, color=PEERS[peer], label=peer)
            axes.bar_label(bars, [f" {speed:.2f}" for _, speed in rows], fontsize=6)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_yticks(range(len(here)), [entry.network for entry in here])
        axes.set_ylabel(f"batch {batch}")
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=7)
    panels[-1, 0].set_xlabel(f"times the speed of each peer, {NAME} FP16; left of the line the peer is faster")
    figure.suptitle(f"Networks that others made, FP16, {gpu}", fontsize=10)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    pyplot.close(figure)


def write(rows: Sequence[Mapping[str, Any]], machine: str, gpu: str, left_out: Sequence[str], docs: Path) -> Path:
    """Write docs/benchmarks-zoo.md and its chart.

    Args:
        rows: Of the zoo, of a record.
        machine: One paragraph about the machine.
        gpu: The GPU's name.
        left_out: Rows without figures, with the reason.
        docs: Folder of the page.

    Returns:
        The page.
    """
    page, image, found = docs / "benchmarks-zoo.md", docs / "images" / "benchmark-zoo.png", entries(rows)
    parts = [machine, goals_table(found)]
    if any(entry.speeds for entry in found):
        image.parent.mkdir(parents=True, exist_ok=True)
        chart(found, image, gpu)
        parts.append(f"![times the speed of each peer](images/{image.name})")
    for batch in sorted({entry.batch for entry in found}):
        parts += [f"### Batch {batch}", table([entry for entry in found if entry.batch == batch])]
    if failed := failures(found):
        parts.append(f"Failed:\n\n{failed}")
    if left_out:
        parts.append("\n".join(["Left out:", "", *(f"- {text}" for text in left_out)]))
    if not page.exists():
        write_atomic(page, TITLE.encode())
    put_section(page, "zoo", "\n\n".join(parts))
    return page


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _speed(value: float | None) -> str:
    text = _number(value, ".2f")
    return text if value is None or value >= LEAST else f"**{text}**"


def _operators(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return "–"
    names = ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))
    return f"{sum(counts.values())}: {names}" if names else "0"
