"""The learning curve: loss parts and mAP50 over epochs, from the logs of one or more runs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytrtplugins.utils.figures import FAINT, INK, PALETTE, drawing, save
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
    measured = {title: [row for row in rows if "mAP50" in row] for title, rows in runs.items()}
    measured = {title: rows for title, rows in measured.items() if rows}
    with drawing(11 if measured else 7, 4) as figure:
        panels = figure.subplots(1, 2 if measured else 1, squeeze=False)[0]
        _draw_losses(panels[0], runs)
        if measured:
            _draw_precisions(panels[1], measured)
        save(figure, path)


def _draw_losses(axes: Any, runs: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    for style, (title, rows) in zip(("-", ":", "--"), runs.items(), strict=False):
        for i, part in enumerate(PANELS):
            points = [(row["epoch"], row[part]) for row in rows if row.get(part)]
            if points:
                label = f"{part}, {title}" if len(runs) > 1 else part
                axes.plot(*zip(*points, strict=True), style, color=f"C{i}", label=label, linewidth=1)
    axes.set(xlabel="epochs", ylabel="loss (running mean)", title="Training losses", yscale="log")
    _put_legend(axes)


def _draw_precisions(axes: Any, measured: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    for rows in measured.values():
        x = [row["epoch"] for row in rows]
        for i, name in enumerate(key for key in rows[-1] if key.startswith("AP50 ")):
            dashes = ("-", "--", ":")[i // len(PALETTE) % 3]
            axes.plot(x, [row[name] for row in rows], dashes, color=f"C{i}", linewidth=0.8, label=name[5:])
        axes.plot(x, [row["mAP50"] for row in rows], color=INK, linewidth=2, label="mean")
    axes.set(xlabel="epochs", ylabel="AP at IoU 0.5", title=f"Held-back training images ({next(iter(measured))})")
    axes.grid(color=FAINT)
    _put_legend(axes)


def _put_legend(axes: Any) -> None:
    """Beside the panel, where it hides nothing."""
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
