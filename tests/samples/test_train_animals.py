"""The program that trains the shipped network afresh."""

# ruff: noqa: E402  (the samples are importable only after their folder is on the path)
from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

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


class Machine:
    """In the place of the clock and of the programs: each start takes some time, the first one more, and each step."""

    def __init__(self, first: float, later: float, speed: float) -> None:
        self.now, self.overheads, self.speed = 1000.0, [first], speed
        self.later = later
        self.trained: dict[str, int] = {}

    def monotonic(self) -> float:
        return self.now

    def start(self) -> float:
        overhead = self.overheads.pop() if self.overheads else self.later
        self.now += overhead
        return overhead

    def run(self, options, name: str, steps: int, changes) -> tuple[dict[str, float], float]:
        overhead = self.start()
        self.now += steps * options.batch / self.speed
        self.trained[name] = steps
        return {"step": steps, "mAP50": 0.5, "images/s": self.speed}, overhead

    def evaluate(self, *_, **__) -> SimpleNamespace:
        self.start()
        return SimpleNamespace(stdout="mAP50: 0.7\n")


@pytest.mark.parametrize(("first", "later"), [(60.0, 20.0), (25.0, 25.0), (40.0, 3.0)])
def test_all_of_it_ends_in_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first, later) -> None:
    """The last run gets half of the time in which photos are trained on; little is left over."""
    machine = Machine(first, later, speed=4000.0)
    monkeypatch.setattr(train_animals, "time", machine)
    monkeypatch.setattr(train_animals, "run", machine.run)
    monkeypatch.setattr(train_animals, "open_data", lambda *_: None)
    monkeypatch.setattr(train_animals.subprocess, "run", machine.evaluate)
    assert train_animals.main(["--data", "x", "--out", str(tmp_path), "--seconds", "480"]) == 0
    assert 0.85 * 480 < machine.now - 1000 <= 480
    recipes = [machine.trained[f"recipe-{number}"] for number in range(3)]
    assert recipes == 3 * recipes[:1]  # or they could not be compared
    assert machine.trained["final"] == pytest.approx(sum(recipes), rel=0.01)


def test_a_time_that_is_too_short_for_the_starts_is_refused(tmp_path, monkeypatch, capsys) -> None:
    machine = Machine(60.0, 60.0, speed=4000.0)
    monkeypatch.setattr(train_animals, "time", machine)
    monkeypatch.setattr(train_animals, "run", machine.run)
    monkeypatch.setattr(train_animals, "open_data", lambda *_: None)
    assert train_animals.main(["--data", "x", "--out", str(tmp_path), "--seconds", "100"]) == 1
    assert "5 more starts, of 60 s each, leave no time to train.\nDo: give" in capsys.readouterr().err


def test_data_without_a_validation_list_are_refused_before_anything_is_trained(tmp_path: Path, capsys) -> None:
    assert train_animals.main(["--data", str(draw_set(tmp_path / "set")), "--out", str(tmp_path / "out")]) == 1
    assert "val.txt" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_measures_chooses_trains_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = draw_set(tmp_path / "set")
    (folder / "val.txt").write_text("images/0.png\n")
    monkeypatch.setattr(train_animals, "PROBED", 2)
    monkeypatch.setattr(train_animals, "training_time", lambda *_: 1.0)
    line = ["--data", str(folder), "--out", str(tmp_path / "out"), *TINY[:2], "--"]
    assert train_animals.main([*line, *TINY[2:], "--device", "cpu"]) == 0
    text = (tmp_path / "out/choice.md").read_text()
    assert all(name in text for name in train_animals.RECIPES)
    assert "Validation split, after all photos:\n\nmAP50: " in text
    assert (tmp_path / "out/final/model.weights").is_file()
