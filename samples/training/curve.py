"""Draw the learning curve: losses and held-out scores over epochs, from the logs of one or more runs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytrtplugins.utils.atomic import atomic_path
from pytrtplugins.utils.figures import FAINT, INK, PALETTE, drawing, save

__all__ = ["draw_curve", "read_log", "write_log"]


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


def draw_curve(
    path: Path, runs: Mapping[str, Sequence[Mapping[str, float]]], losses: Sequence[str], score: str
) -> None:
    """Draw the runs' losses on the left, and on the right the scores on held-out photos, overall and per class.

    Args:
        path: Of the image.
        runs: Rows of each run's log, by its title.
        losses: Names of the losses in the log.
        score: Name of the score, such as mAP50; figures that begin with ``AP50`` or ``top`` are drawn with it.
    """
    measured = {title: [row for row in rows if score in row] for title, rows in runs.items()}
    measured = {title: rows for title, rows in measured.items() if rows}
    with drawing(11 if measured else 7, 4) as figure:
        panels = figure.subplots(1, 2 if measured else 1, squeeze=False)[0]
        _draw_losses(panels[0], runs, losses)
        if measured:
            _draw_scores(panels[1], measured, score)
        save(figure, path)


def _draw_losses(axes: Any, runs: Mapping[str, Sequence[Mapping[str, float]]], losses: Sequence[str]) -> None:
    for style, (title, rows) in zip(("-", ":", "--"), runs.items(), strict=False):
        for i, part in enumerate(losses):
            points = [(row["epoch"], row[part]) for row in rows if row.get(part)]
            if points:
                label = f"{part}, {title}" if len(runs) > 1 else part
                axes.plot(*zip(*points, strict=True), style, color=f"C{i}", label=label, linewidth=1)
    axes.set(xlabel="epochs", ylabel="running mean", title="Training", yscale="log")
    _put_legend(axes)


def _draw_scores(axes: Any, measured: Mapping[str, Sequence[Mapping[str, float]]], score: str) -> None:
    for rows in measured.values():
        x = [row["epoch"] for row in rows]
        parts = [key for key in rows[-1] if key.startswith(("AP50 ", "top")) and key != score]
        for i, name in enumerate(parts):
            dashes = ("-", "--", ":")[i // len(PALETTE) % 3]
            axes.plot(
                x, [row[name] for row in rows], dashes, color=f"C{i}", linewidth=0.8, label=name.removeprefix("AP50 ")
            )
        axes.plot(x, [row[score] for row in rows], color=INK, linewidth=2, label=score)
    axes.set(xlabel="epochs", ylabel=score, title=f"Held-back photos ({next(iter(measured))})")
    axes.grid(color=FAINT)
    _put_legend(axes)


def _put_legend(axes: Any) -> None:
    """Beside the panel, where it hides nothing."""
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
