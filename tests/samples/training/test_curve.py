"""Logs of runs, and the curves that are drawn from them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.samples.needs_torch  # noqa: F401
from training import curve
from training.curve import draw_curve, read_log, write_log

ROWS = [
    {"step": 10, "epoch": 0.5, "box": 2.0, "class": 1.0},
    {"step": 20, "epoch": 1.0, "box": 1.5, "mAP50": 40.0, "AP50 cat": 30.0, "AP50 dog": 50.0},
    {"step": 30, "epoch": 1.5, "box": 1.25, "class": 0.5, "mAP50": 60.0, "AP50 cat": 55.0, "AP50 dog": 65.0},
]


def lines(monkeypatch: pytest.MonkeyPatch, *given: object) -> list[list[tuple[str, list[list[float]]]]]:
    """The label and the points of each line of each panel."""
    panels: list[list[tuple[str, list[list[float]]]]] = []

    def save(figure: object, path: Path) -> None:
        panels.extend([(line.get_label(), line.get_xydata().tolist()) for line in axes.lines] for axes in figure.axes)

    monkeypatch.setattr(curve, "save", save)
    draw_curve(Path("curve.png"), *given)
    return panels


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_log(tmp_path / "log.csv", [*ROWS, {"box": 1 / 3, "step": 1234567}])
    assert (tmp_path / "log.csv").read_text().splitlines()[:2] == [
        "step,epoch,box,class,mAP50,AP50 cat,AP50 dog",
        "10,0.5,2,1,,,",
    ]
    assert read_log(tmp_path / "log.csv") == [*ROWS, {"box": 0.333333, "step": 1234570}]


def test_a_figure_has_the_losses_and_the_scores_of_held_back_photos(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(monkeypatch, {"a run": ROWS}, ("box", "class"), "mAP50") == [
        [("box", [[0.5, 2], [1, 1.5], [1.5, 1.25]]), ("class", [[0.5, 1], [1.5, 0.5]])],
        [("cat", [[1, 30], [1.5, 55]]), ("dog", [[1, 50], [1.5, 65]]), ("mAP50", [[1, 40], [1.5, 60]])],
    ]


def test_a_score_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"epoch": 1.0, "loss": 2.0, "top1": 50.0, "top5": 90.0}]
    _, scores = lines(monkeypatch, {"a run": rows}, ("loss",), "top1")
    assert scores == [("top5", [[1, 90]]), ("top1", [[1, 50]])]


def test_several_runs_are_named_and_without_scores_there_is_one_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(monkeypatch, {"a": ROWS[:1], "b": [{"epoch": 1.0, "box": 3.0}]}, ("box",), "mAP50") == [
        [("box, a", [[0.5, 2]]), ("box, b", [[1, 3]])]
    ]
