"""The program that trains the shipped network afresh."""

# ruff: noqa: E402  (the samples are importable only after their folder is on the path)
from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

sys.path.insert(0, str(Path(__file__).parents[2] / "samples"))

import train_animals

from tests.samples.rectangles import TINY, draw_set

FOUND = {"a": {"step": 9, "mAP50": 0.5, "AP50 x": 0.25}, "b": {"step": 9, "mAP50": 0.75, "AP50 x": 0.5}}


def test_the_recipe_that_is_best_on_held_back_photos_is_chosen() -> None:
    assert train_animals.choose(FOUND) == "b"
    text = train_animals.report(FOUND, "b", "mAP50: 0.7")
    assert "| a | 9 | 0.500 | 0.250 |" in text
    assert "| **b** | 9 | 0.750 | 0.500 |" in text
    assert text.endswith("mAP50: 0.7")


def test_a_schedule_has_the_steps_that_fit_into_its_time() -> None:
    assert train_animals.steps_in(10, 640.0, 64) == 100
    assert train_animals.steps_in(0.0, 640.0, 64) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_measures_chooses_trains_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = draw_set(tmp_path / "set")
    (folder / "val.txt").write_text("images/0.png\n")
    monkeypatch.setattr(train_animals, "PROBED", 2)
    line = ["--data", str(folder), "--out", str(tmp_path / "out"), "--seconds", "1", *TINY[:2], "--"]
    assert train_animals.main([*line, *TINY[2:], "--device", "cpu"]) == 0
    text = (tmp_path / "out/choice.md").read_text()
    assert all(name in text for name in train_animals.RECIPES)
    assert "Validation split, after all photos:\n\nmAP50: " in text
    assert (tmp_path / "out/final/model.weights").is_file()
