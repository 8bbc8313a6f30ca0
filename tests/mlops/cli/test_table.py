"""The command ``pytrt table``."""

import json
import sys

import numpy as np
import onnx
import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.mlops.cli.table import _numbers, _task
from pytrtplugins.vision import save_image
from tests.mlops.tables.people import network, photos


@pytest.fixture
def files(pytrt, tmp_path):
    onnx.save(network(), tmp_path / "face.onnx")
    np.savez(tmp_path / "faces.npz", **photos())
    (tmp_path / "pairs.txt").write_text("a.png b.png maybe\n")
    return tmp_path


QUICK = ("--data", "faces.npz", "--pixels", "0..255", "--calibration-size", "3", "--seconds", "0.01", "--rounds", "1")


def test_a_table_is_printed_and_written_and_leaves_nothing_else(printed, files):
    pytest.importorskip("matplotlib")
    written = [word for name in ("t.md", "t.json", "t.html", "t.svg") for word in ("-o", name)]
    out = printed(
        "table", "face.onnx", "--task", "verification", "--engine", "reference", "--batch", "2", *QUICK, *written
    )
    assert "| reference fp32 |" in out
    assert "| reference int8, minmax on 3 |" in out
    assert "written: t.svg" in out
    assert (files / "t.md").read_text() in out
    rows = json.loads((files / "t.json").read_text())["rows"]
    assert rows[0]["host_mib"] > 0
    assert rows[1]["figures"]["cosine_mean"] > 0.9
    assert sorted(path.name for path in files.iterdir()) == [
        "face.onnx", "faces.npz", "pairs.txt", "t.html", "t.json", "t.md", "t.svg"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["t.html", "t.png", "t.svg", "t.pdf"])
def test_a_chart_asks_for_matplotlib_before_anything_is_built(pytrt, files, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = pytrt("table", "face.onnx", "--task", "verification", *QUICK, "-o", "t.md", "-o", name)
    assert (code, "a chart needs the package 'matplotlib'" in err) == (2, True), err
    assert not (files / "t.md").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pixels", "bgr"), "--pixels bgr: expected one of 0..1, 0..255"),
        (("--calibration-size", "0"), "--calibration-size 0: expected numbers from 1 to"),
        (("--calibration-size", "3,x"), "--calibration-size 3,x: expected numbers"),
        (("--batch", "1,"), "--batch 1,: expected numbers"),
        (("--engine", "cpu,"), "--engine cpu,: expected names"),
        (("--precision", "fp32,fp7"), "--precision fp7: expected fp32"),
        (("--output", "t.txt"), "t.txt"),
        (("--algorithm", "kl"), "algorithm 'kl'"),
        (("--data", "nowhere"), "no such folder or file"),
        (("--calibration-share", "0.05"), "cannot be divided"),
        (("--data", "pairs.txt", "--task", "classification"), "a list of pairs is for --task verification"),
        (("--data", "pairs.txt"), "pairs.txt line 1: expected two images, 1 or 0"),
        (("--image-root", "x"), "--image-root: only a list of pairs"),
        (
            ("--augment-calibration", "--task", "detection"),
            "--augment-calibration: detection calibrates on the images in",
        ),
    ],
)
def test_wrong_words_are_refused_before_anything_is_built(refused, files, words, said):
    assert said in " ".join(refused("table", "face.onnx", "--task", "verification", *QUICK, *words).split())
    assert not (files / "face.table").exists()


@pytest.mark.parametrize(
    ("text", "numbers"), [("1", (1,)), ("12,1,7", (12, 1, 7)), ("13", None), ("0", None), ("1,,2", None)]
)
def test_numbers_reach_the_most(text, numbers):
    if numbers is not None:
        assert _numbers(text, "--batch", 12) == numbers
        return
    with pytest.raises(UsageError, match=f"--batch {text}: expected numbers from 1 to 12 with commas"):
        _numbers(text, "--batch", 12)


@pytest.mark.parametrize("task", ["verification", "classification"])
def test_figures_are_of_the_data_and_calibration_sees_other_images(files, task):
    np.savez(files / "few.npz", **photos(each=2))
    few, many = files / "few.npz", files / "faces.npz"
    for data, calibration, counts in ((many, few, (18, 12)), (few, many, (12, 18)), (many, None, (12, 6))):
        made = _task(task, data, None, calibration, 0.3, False, "0..1", None, "letterbox", None, None)
        assert (len(made.data), len(made.calibrated_on)) == counts


def test_a_list_of_pairs_is_measured_by_folds(pytrt, files, short_measurements):
    for name in ("s4/0.png", "s4/1.png", "s5/0.png", "s5/1.png"):
        (files / "people" / name).parent.mkdir(parents=True, exist_ok=True)
        save_image(photos()[name], files / "people" / name)
    rows = [("s4/0", "s4/1", 1, 0), ("s4/0", "s5/0", 0, 0), ("s5/0", "s5/1", 1, 1), ("s4/1", "s5/1", 0, 1)]
    (files / "pairs.csv").write_text("".join(f"{a}.png,{b}.png,{same},{fold}\n" for a, b, same, fold in rows))
    code, out, _ = pytrt(
        "table", "face.onnx", "--task", "verification", "--engine", "reference", "--batch", "1", *QUICK,
        "--data", "pairs.csv", "--image-root", "people", "--calibration", "faces.npz", "-o", "t.json",
    )  # fmt: skip
    assert code == 0
    assert "balanced accuracy, 2 folds" in out
    assert "verification on pairs.csv" in out
    assert json.loads((files / "t.json").read_text())["rows"][1]["figures"]["fold_accuracy"] == 1.0
