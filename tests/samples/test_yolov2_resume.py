"""Runs of the training program: what continues, what is refused, what is skipped, and what the log has."""

# ruff: noqa: E402  (the samples need PyTorch)
from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

import train_yolov2

from pytrtplugins.errors import FormatError
from tests.samples.needs_torch import WITHOUT_RANKS
from tests.samples.rectangles import ALONE, TINY
from training import run
from training.curve import read_log
from training.data import Part, hold_back, load_photos
from training.run_lock import locked_run
from training.schedule import Schedule
from yolov2_training import run as yolov2_run

pytestmark = [pytest.mark.usefixtures("one_thread", "no_figure"), WITHOUT_RANKS]


@pytest.fixture
def photos(rectangles: Path, tmp_path: Path) -> Path:
    """A set of this test's own."""
    return Path(shutil.copytree(rectangles, tmp_path / "set"))


def line(photos: Path, out: Path, *more: str) -> list[str]:
    return ["--data", str(photos), "--output", str(out), "--steps", "4", *TINY, "--device", "cpu", *more]


@pytest.mark.parametrize("held", [(), ("--hold-back", "0.2")], ids=["all", "held back"])
def test_labels_that_were_rewritten_are_noticed(photos: Path, tmp_path: Path, capsys, held: tuple[str, ...]) -> None:
    options = line(photos, tmp_path / "out", *held)
    assert train_yolov2.main([*options, "--seconds", "0"]) == 0
    label = photos / "labels/3.txt"
    before = label.read_text()
    for text in (before.replace("1 0.", "0 0."), "") if held else (before + before, before.replace(" 0.", " 0.1", 1)):
        label.write_text(text)
        capsys.readouterr()
        assert train_yolov2.main([*options, "--resume"]) == 1
        assert capsys.readouterr().err == (
            f"UsageError: {tmp_path}/out/checkpoints/step-000000001: the photos' names or labels have changed since it was "
            "written.\nDo: put the old ones back, or give another --output\n"
        )
    label.write_text(before)
    assert train_yolov2.main([*options, "--resume"]) == 0


def test_a_second_run_in_the_same_folder_is_refused(photos: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    with locked_run(out, ALONE):
        for more in ((), ("--resume",), ("--gpus", "2")):
            assert train_yolov2.main(line(photos, out, *more)) == 1
            cause, do = capsys.readouterr().err.splitlines()
            assert cause.startswith(f"UsageError: --output {out}: another run writes there now (process ")
            assert do == "Do: wait until it has ended, or give another --output"
    assert [path.name for path in out.iterdir()] == [".lock"]
    assert train_yolov2.main(line(photos, out)) == 0
    assert train_yolov2.main(line(tmp_path / "none", tmp_path / "other")) == 1
    assert not (tmp_path / "other").exists()


def test_equal_runs_write_equal_files_and_the_log_has_the_rate_of_its_steps(photos: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert train_yolov2.main(line(photos, tmp_path / name, "--deterministic")) == 0
    for name in ("model.pt", "model.weights", "model.cfg", "model.names"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    schedule, rows = Schedule(4, 2e-3), read_log(tmp_path / "a/log.csv")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["rate"] for row in rows] == [float(f"{schedule.rate(step):.6g}") for step in range(4)]


def test_a_checkpoint_whose_facts_lack_something_is_passed_over(photos: Path, tmp_path: Path, capsys) -> None:
    options = line(photos, tmp_path / "out", "--resume", "--seconds", "0")
    for _ in range(2):
        assert train_yolov2.main(options) == 0
    path = tmp_path / "out/checkpoints/step-000000002/facts.json"
    whole = json.loads(path.read_text())
    names = {*whole["facts"]} - {"world", "scaler"}
    assert names == {"recipe", "rows", "photos", "classes", "digest", "teacher", "independent ranks"}
    path.write_text(json.dumps(whole | {"facts": {"recipe": {}, "world": 1}}))
    capsys.readouterr()
    assert train_yolov2.main(options) == 0
    printed = capsys.readouterr().out
    assert f"{path}: it lacks rows, photos, classes, " in printed
    assert "the run continues from step-000000001" in printed
    assert json.loads(path.read_text())["facts"].keys() == whole["facts"].keys()  # written again


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, "it lacks recipe, rows"),
        ({"rows": []}, "it lacks recipe"),
        ({"recipe": {}, "rows": None}, "its rows are not those of a log"),
        ({"recipe": {}, "rows": [3]}, "its rows are not those of a log"),
        ({"recipe": {}, "rows": [{"epoch": 1}]}, "its rows are not those of a log"),
        ({"recipe": {}, "rows": [{"step": "1"}]}, "its rows are not those of a log"),
        ({"recipe": [], "rows": [{"step": 1, "mAP50": 0.5}]}, "its recipe is none"),
    ],
)
def test_facts_of_another_kind_are_damage(facts: dict, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        run._check_facts(facts, ("recipe", "rows"))


def test_results_that_cannot_be_written_are_an_error_of_one_line(
    photos: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    options = line(photos, tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(yolov2_run, "write_darknet", full)
        assert train_yolov2.main(options) == 1
    assert capsys.readouterr().err == (
        f"ExecutionError: --output {tmp_path}/out: the results could not be written: [Errno 28] No space left on device.\n"
        "Do: make room, then run the same command with --resume, which writes them again\n"
    )
    assert train_yolov2.main([*options, "--resume"]) == 0
    assert (tmp_path / "out/model.weights").is_file()


HEADS = {"empty": b"", "junk": b"no photo at all", "cut": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0"}


@pytest.mark.parametrize(("head", "loader"), [("empty", "resident"), ("junk", "dataloader"), ("cut", "resident")])
def test_photos_whose_head_cannot_be_read_are_skipped(
    photos: Path, tmp_path: Path, capsys, head: str, loader: str
) -> None:
    for number in (3, 8):
        (photos / f"images/{number}.png").write_bytes(HEADS[head])
    options = line(photos, tmp_path / "out", "--loader", loader, "--workers", "0")
    assert train_yolov2.main(options) == 1
    error = capsys.readouterr().err
    assert "images/3.png" in error or "images/8.png" in error
    assert error.endswith("Do: take it out of the set, or give --skip-bad\n")
    assert train_yolov2.main([*options, "--skip-bad"]) == 0
    assert "did not decode, and others took their place" in capsys.readouterr().out


def test_bad_photos_that_are_held_back_are_not_measured(photos: Path, tmp_path: Path, capsys) -> None:
    _, held = hold_back(10, 0.3)
    (photos / f"images/{held[1]}.png").write_bytes(b"junk")
    options = line(photos, tmp_path / "out", "--hold-back", "0.3", "--evaluations", "1")
    assert train_yolov2.main(options) == 1
    assert f"images/{held[1]}.png does not decode" in capsys.readouterr().err
    assert train_yolov2.main([*options, "--skip-bad"]) == 0
    assert "mAP50" in (tmp_path / "out/log.csv").read_text()
    data = yolov2_run.open_data([photos], "train.txt")
    pool = load_photos(Part(data, held), ALONE.device, side=64, skip_bad=True)
    good = load_photos(Part(data, [held[0], held[2]]), ALONE.device, side=64)
    assert torch.equal(pool.pixels, good.pixels)
    assert torch.equal(pool.boxes, good.boxes)
