"""The program that trains the shipped network afresh."""

# ruff: noqa: E402  (the samples need PyTorch)
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')


import train_animals

from tests.samples.rectangles import ANCHORS, SMALL, TINY, draw_set
from yolov2_training.export import write_darknet
from yolov2_training.network import Yolov2, declare_layers

FOUND = {"a": {"step": 9, "mAP50": 0.5, "AP50 x": 0.25}, "b": {"step": 9, "mAP50": 0.75, "AP50 x": 0.5}}


def test_the_recipe_that_is_best_on_held_back_photos_is_chosen() -> None:
    """Of those that differ by less than a seed does, the last."""
    assert train_animals.choose(FOUND) == "b"
    for last, best in ((0.735, "b"), (0.745, "c"), (0.751, "c")):
        assert train_animals.choose(FOUND | {"c": {"mAP50": last}}) == best
    text = train_animals.report(FOUND, "b", "mAP50: 0.7")
    assert "| a | 9 | 0.500 | 0.250 |" in text
    assert "| **b** | 9 | 0.750 | 0.500 |" in text
    assert text.endswith("mAP50: 0.7")
    assert "not measured yet" in train_animals.report(FOUND, "b")
    counted = {name: row | {"classes": 5.0} for name, row in FOUND.items()}
    assert "| recipe | steps | mAP50 of 5 classes | x |" in train_animals.report(counted, "b").replace("AP50 x", "x")


def test_a_schedule_has_the_steps_that_fit_into_its_time() -> None:
    assert train_animals.steps_in(10, 640.0, 64) == 100
    assert train_animals.steps_in(0.0, 640.0, 64) == 1


def use(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> Machine:
    """Put a machine in the place of what takes time; nothing is checked."""
    monkeypatch.setattr(train_animals, "time", machine)
    monkeypatch.setattr(train_animals, "run", machine.run)
    monkeypatch.setattr(train_animals, "check", lambda *_: None)
    monkeypatch.setattr(train_animals.subprocess, "run", machine.evaluate)
    return machine


def shipped(folder: Path) -> str:
    """The .cfg of a network of the widths that these runs have, with its weights and names."""
    net = Yolov2(declare_layers(SMALL["stages"], SMALL["head"], SMALL["passthrough"], 2))
    write_darknet(folder / "net", net, ANCHORS, ("red", "green"), size=64)
    return str(folder / "net.cfg")


class Machine:
    """In the place of the clock and of the programs: each start takes some time, the first one more, and each step."""

    def __init__(self, first: float, later: float, speed: float) -> None:
        self.now, self.overheads, self.speed = 1000.0, [first], speed
        self.later = later
        self.trained: dict[str, int] = {}
        self.ended_early: dict[str, bool] = {}

    def monotonic(self) -> float:
        return self.now

    def start(self) -> float:
        overhead = self.overheads.pop() if self.overheads else self.later
        self.now += overhead
        return overhead

    def run(self, options, name: str, steps: int, changes) -> tuple[dict[str, float], float]:
        overhead = self.start()
        if "--seconds" in changes:  # which the first steps take part of, as they compile
            left = float(changes[changes.index("--seconds") + 1]) - overhead
            self.ended_early[name] = steps > (steps := min(steps, int(left * self.speed / options.batch)))
        self.now += steps * options.batch / self.speed
        self.trained[name] = steps
        return {"step": steps, "mAP50": 0.5, "images/s": self.speed}, overhead

    def evaluate(self, *_, **__) -> SimpleNamespace:
        self.start()
        return SimpleNamespace(stdout="mAP50: 0.7\n")

    def together(self, line: list[str]) -> SimpleNamespace:
        """Processes that share the device: they start at the same time."""
        steps, batch = (int(line[line.index(name) + 1]) for name in ("--steps", "--batch"))
        self.trained[Path(line[line.index("--output") + 1]).name] = steps
        self.now += steps * batch / self.speed + self.later / len(train_animals.RECIPES)
        return SimpleNamespace(wait=lambda: 0, kill=lambda: None)


@pytest.mark.parametrize(("first", "later"), [(60.0, 20.0), (25.0, 25.0), (40.0, 3.0)])
def test_all_of_it_ends_in_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first, later) -> None:
    """The last run gets half of the time in which photos are trained on; little is left over."""
    machine = use(monkeypatch, Machine(first, later, speed=4000.0))
    assert train_animals.main(["--data", "x", "--output", str(tmp_path), "--seconds", "480"]) == 0
    assert 0.85 * 480 < machine.now - 1000 <= 480
    recipes = [machine.trained[f"recipe-{number}"] for number in range(len(train_animals.RECIPES))]
    assert recipes == len(recipes) * recipes[:1]  # or they could not be compared
    assert machine.trained["final"] == pytest.approx(sum(recipes), rel=0.01)
    assert machine.ended_early == {"final": False}  # its learning rate has fallen to the end


@pytest.mark.parametrize(("first", "later"), [(100.0, 30.0), (60.0, 10.0)])
def test_weights_are_trained_further_by_the_recipe_that_is_best_without_the_held_back_photos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first, later
) -> None:
    """What is chosen on never saw these photos; the given weights, which did, are trained last; and all of it ends in its time."""
    machine, lines = use(monkeypatch, Machine(first, later, speed=2500.0)), []
    monkeypatch.setattr(train_animals, "run", lambda *given: lines.append(given) or machine.run(*given))
    monkeypatch.setattr(train_animals, "read_log", lambda path: [{"step": 9, "mAP50": float(path.parent.name[-1])}])
    started = []
    monkeypatch.setattr(train_animals.subprocess, "Popen", lambda line: started.append(line) or machine.together(line))
    given = ["--data", "x", "--output", str(tmp_path), "--seconds", "540", "--start", "shipped.cfg"]
    assert train_animals.main(given) == 0
    assert 0.8 * 540 < machine.now - 1000 <= 540
    (_, base, _, alone), (_, final, _, best) = lines
    assert (base, final) == ("base", "final")
    assert "--hold-back" in alone
    assert "--start" not in alone
    for number, line in enumerate(started):
        assert line[line.index("--start") + 1] == str(tmp_path / "base/model.pt")
        assert "--hold-back" in line
        assert line[line.index("--output") + 1] == str(tmp_path / f"recipe-{number}")
    assert best[best.index("--start") + 1] == "shipped.cfg"
    assert "--hold-back" not in best
    assert best[: len(list(train_animals.RECIPES.values())[-1])] == list(train_animals.RECIPES.values())[-1]
    assert machine.trained["final"] > 2 * machine.trained["recipe-0"]
    assert machine.ended_early == {"base": True, "final": False}


def test_a_recipe_that_fails_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    killed = []
    statuses = iter([0, 1])
    monkeypatch.setattr(train_animals, "run", lambda *_: ({"images/s": 1000.0}, 1.0))
    monkeypatch.setattr(train_animals, "check", lambda *_: None)

    def start(line):
        status = next(statuses)
        return SimpleNamespace(wait=lambda: status, kill=lambda: killed.append(line))

    monkeypatch.setattr(train_animals.subprocess, "Popen", start)
    assert train_animals.main(["--data", "x", "--output", str(tmp_path), "--start", "shipped.cfg"]) == 1
    assert len(killed) == len(train_animals.RECIPES) == 2
    assert "returned non-zero exit status 1" in capsys.readouterr().err


def test_a_time_that_is_too_short_for_the_starts_is_refused(tmp_path, monkeypatch, capsys) -> None:
    use(monkeypatch, Machine(60.0, 60.0, speed=4000.0))
    assert train_animals.main(["--data", "x", "--output", str(tmp_path), "--seconds", "100"]) == 1
    assert "4 more starts, of 60 s each, leave no time to train.\nDo: give" in capsys.readouterr().err


REFUSED = {
    "no validation list": ([], "the list val.txt is missing"),
    "too few photos": (["--data", "{tmp}/few"], "--hold-back 0.12: of 4 photos it holds back 0"),
    "out is a file": (["--output", "{tmp}/file"], "{tmp}/file is a file, not a folder"),
    "teacher": (["--teacher", "{tmp}/no.cfg"], "--teacher {tmp}/no.cfg: {tmp}/no.cfg is not there"),
    "start": (["--start", "{tmp}/no.pt"], "--start {tmp}/no.pt: {tmp}/no.pt is not there"),
    "start of other widths": (
        ["--start", "{tmp}/net.cfg"],
        "--start {tmp}/net.cfg: a network of other widths or classes",
    ),
    "further options": (["--", "--passthrough", "7"], "--passthrough 7: expected a multiple of 4"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_end_a_later_run_is_said_before_the_first(tmp_path: Path, capsys, monkeypatch, case: str) -> None:
    monkeypatch.setattr(train_animals, "run", lambda *_: pytest.fail("it was trained"))
    given, cause = [part.replace("{tmp}", str(tmp_path)) for part in REFUSED[case][0]], REFUSED[case][1]
    (tmp_path / "file").touch()
    draw_set(tmp_path / "few", 4)
    shipped(tmp_path)
    line = ["--data", str(draw_set(tmp_path / "set")), "--output", str(tmp_path / "out"), *given]
    assert train_animals.main(line) == 1
    assert cause.replace("{tmp}", str(tmp_path)) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_can_be_trained_is_not_refused(tmp_path: Path) -> None:
    folder = draw_set(tmp_path / "set")
    (folder / "val.txt").write_text("images/0.png\n")
    line = ["--data", str(folder), "--output", str(tmp_path / "out"), "--start", shipped(tmp_path), "--", *TINY[2:]]
    train_animals.check(train_animals.parse([*line, "--device", "cpu"]))


def test_the_validation_split_can_be_left_to_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = use(monkeypatch, Machine(60.0, 20.0, speed=4000.0))
    monkeypatch.setattr(train_animals.subprocess, "run", lambda *_, **__: pytest.fail("it was measured"))
    line = ["--data", str(tmp_path / "absent"), "--output", str(tmp_path), "--seconds", "480", "--skip-validation"]
    assert train_animals.main(line) == 0
    assert 0.85 * 480 < machine.now - 1000 <= 480
    assert "not measured yet" in (tmp_path / "choice.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", [False, True], ids=["afresh", "further"])
def test_it_measures_chooses_trains_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start) -> None:
    folder = draw_set(tmp_path / "set")
    (folder / "val.txt").write_text("images/0.png\n")
    monkeypatch.setattr(train_animals, "PROBED", 2)
    monkeypatch.setattr(train_animals, "SPEED", 1.0)
    monkeypatch.setattr(train_animals, "training_time", lambda *_: 1.0)
    line = ["--data", str(folder), "--output", str(tmp_path / "out"), *TINY[:2]]
    if start:
        line += ["--start", shipped(tmp_path), "--seconds", "20"]
    assert train_animals.main([*line, "--", *TINY[2:], "--device", "cpu"]) == 0
    text = (tmp_path / "out/choice.md").read_text()
    assert all(name in text for name in train_animals.RECIPES)
    assert "Validation split, after all photos:\n\nmAP50: " in text
    assert (tmp_path / "out/final/model.weights").is_file()
