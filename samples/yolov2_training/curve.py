"""The learning curve: loss parts and mAP50 over epochs, from the logs of one or more runs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytrtplugins.utils.files import atomic_path

__all__ = ["draw_curve", "read_log", "write_log"]

PANELS = ("box", "objectness", "class", "imitation")


def write_log(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write the rows as CSV; a cell stays empty where a row has no such value."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" for k, v in row.items()} for row in rows)


def read_log(path: Path) -> list[dict[str, float]]:
    """Read what :func:`write_log` wrote."""
    with open(path, encoding="utf-8", newline="") as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]


def draw_curve(path: Path, runs: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Draw the runs' losses on the left, and on the right mAP50 where images were held back.

    Args:
        path: Of the image.
        runs: Rows of each run's log, by its title.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = {title: [row for row in rows if "mAP50" in row] for title, rows in runs.items()}
    measured = {title: rows for title, rows in measured.items() if rows}
    figure = Figure(figsize=(10 if measured else 6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2 if measured else 1, squeeze=False)[0]
    for style, (title, rows) in zip(("-", ":", "--"), runs.items(), strict=False):
        for i, part in enumerate(PANELS):
            points = [(row["epoch"], row[part]) for row in rows if row.get(part)]
            if points:
                label = f"{part}, {title}" if len(runs) > 1 else part
                axes[0].plot(*zip(*points, strict=True), style, color=f"C{i}", label=label, linewidth=1)
    axes[0].set(xlabel="epochs", ylabel="loss (running mean)", title="Training losses", yscale="log")
    axes[0].legend(fontsize=7)
    for rows in measured.values():
        x = [row["epoch"] for row in rows]
        for i, name in enumerate(key for key in rows[-1] if key.startswith("AP50 ")):
            axes[1].plot(x, [row[name] for row in rows], color=f"C{i}", linewidth=0.8, label=name[5:])
        axes[1].plot(x, [row["mAP50"] for row in rows], "k", linewidth=2, label="mean")
    for i, title in enumerate(measured):
        axes[1].set(
            xlabel="epochs", ylabel="AP at IoU 0.5", title=f"Held-back training images ({title})" if not i else None
        )
    if measured:
        axes[1].legend(fontsize=7)
        axes[1].grid(alpha=0.3)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=110)
