"""Records of the zoo → a page with a chart, a table for each batch, and what was to be reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import image_link, image_paths, put_section
from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.figures import INK, drawing, save

from .runners import NAME, ONNXRUNTIME, TORCH_COMPILED, TORCH_GRAPH, TORCH_TUNED

PEERS = {TORCH_GRAPH: "C1", TORCH_COMPILED: "C4", TORCH_TUNED: "C3", ONNXRUNTIME: "C2"}
"""Whom our FP16 is compared with; each peer has one colour."""
LEAST, LEAST_MEAN = 1.0, {1: 1.5, 32: 1.2}
MOST = (
    ("build_s", "whose first build takes, in seconds,", 90),
    ("again_s", "whose build from the cache takes, in seconds,", 3),
    ("error", "whose error beside PyTorch's FP32 is", 1e-2),
)
"""Fields of a row, and the largest value that was to be reached."""
TITLE = (
    "# Networks that others made, on a GPU\n\n"
    "[Benchmarks](benchmarks.md#networks-that-others-made) says how the figures on this page were measured.\n"
)


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


def table(found: Sequence[Entry]) -> str:
    """The networks of one batch as Markdown, with the geometric means; a speed below 1 is bold."""
    peers = [peer for peer in PEERS if any(peer in entry.speeds for entry in found)]
    head = [
        "network", "FP16 µs", *(text for peer in peers for text in (f"{peer} µs", "times its speed")),
        "INT8 µs", "FP16 beside it µs", "FP16 / INT8", "kernels", "steps", "by arrays",
        "outside the graph", "memory MB", "build s: first, again", "error FP32, FP16, INT8",
    ]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for entry in found:
        own, int8 = entry.own, entry.int8
        builds = ", ".join(_number(own.get(name), ".1f") for name in ("build_s", "again_s"))
        errors = ", ".join(
            _number(each, ".0e") for each in (own.get("error_fp32"), own.get("error"), int8.get("error"))
        )
        cells = [
            entry.network, _number(own.get("us"), ",.1f"), *_against(entry, peers),
            _number(int8.get("us"), ",.1f"), _number(entry.beside, ",.1f"), _number(entry.int8_speed, ".2f"),
            _number(own.get("kernels"), "d"),
            _number(own.get("steps"), "d"), *(_operators(own.get(name)) for name in ("arrays", "outside")),
            _number(None if own.get("bytes") is None else own["bytes"] / 1e6, ".1f"), builds, errors,
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    means = [mean(entry.speeds[peer] for entry in found if peer in entry.speeds) for peer in peers]
    int8_mean = mean(entry.int8_speed for entry in found if entry.int8_speed is not None)
    cells = [
        "geometric mean",
        "",
        *(text for each in means for text in ("", _speed(each))),
        "",
        "",
        _number(int8_mean, ".2f"),
        *[""] * 7,
    ]
    lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def failures(found: Sequence[Entry]) -> str:
    """Errors of networks, as a list."""
    return "\n".join(
        f"- {entry.network}, batch {entry.batch}, {runner}: {error}"
        for entry in found
        for runner, error in entry.failures.items()
    )


def chart(found: Sequence[Entry], gpu: str, *paths: Path) -> None:
    """How many times faster our FP16 is than each peer with one batch, the smallest lead on top."""
    shown = [entry for entry in found if entry.speeds]
    with drawing(9, 0.34 * len(shown) + 1.9) as figure:
        axes = figure.subplots()
        bars = _draw(axes, shown)
        axes.set_xlabel(f"times the speed of each peer, {NAME} FP16; the peer is faster left of the line")
        figure.suptitle(f"Networks that others made, FP16, batch {shown[0].batch}, {gpu}", fontsize=10)
        known = [peer for peer in PEERS if peer in bars]
        figure.legend([bars[peer] for peer in known], known, loc="outside lower center", ncols=len(known))
        save(figure, *paths)


def _draw(axes: Any, found: Sequence[Entry]) -> dict[str, Any]:
    """Draw the bars; gives those of each peer."""
    here = sorted(found, key=lambda entry: -min(entry.speeds.values()))
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


def write(
    rows: Sequence[Mapping[str, Any]],
    machine: str,
    gpu: str,
    left_out: Sequence[str],
    docs: Path,
    earlier: str = "",
    name: str = "zoo",
) -> Path:
    """Write a section of docs/benchmarks-zoo.md, and a chart for each batch.

    Args:
        rows: Of the zoo, of a record.
        machine: One paragraph about the machine.
        gpu: The GPU's name.
        left_out: Rows without figures, with the reason.
        docs: Folder of the page.
        earlier: Which rows are of earlier days, as Markdown.
        name: Of the section.

    Returns:
        The page.
    """
    page, found = docs / "benchmarks-zoo.md", entries(rows)
    parts = [machine, goals_table(found)]
    for batch in sorted({entry.batch for entry in found}):
        here = [entry for entry in found if entry.batch == batch]
        parts += [f"### Batch {batch}", table(here)]
        if any(entry.speeds for entry in here):
            images = image_paths(docs, f"benchmark-{name}" if batch == 1 else f"benchmark-{name}-{batch}")
            chart(here, gpu, *images)
            parts.append(image_link(f"times the speed of each peer, batch {batch}", images[0]))
    if failed := failures(found):
        parts.append(f"Failed:\n\n{failed}")
    if left_out:
        parts.append("\n".join(["Left out:", "", *(f"- {text}" for text in left_out)]))
    if earlier:
        parts.append(earlier)
    if not page.exists():
        write_atomic(page, TITLE.encode())
    put_section(page, name, "\n\n".join(parts))
    return page


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _against(entry: Entry, peers: Sequence[str]) -> list[str]:
    """Each peer's time, and our speed against it."""
    both = ((_number(entry.peers.get(peer), ",.1f"), _speed(entry.speeds.get(peer))) for peer in peers)
    return [text for pair in both for text in pair]


def _speed(value: float | None) -> str:
    text = _number(value, ".2f")
    return text if value is None or value >= LEAST else f"**{text}**"


def _operators(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return "–"
    names = ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))
    return f"{sum(counts.values())}: {names}" if names else "0"
