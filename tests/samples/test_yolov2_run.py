"""A run: at which size it measures and exports, and what it refuses before its first step."""

# ruff: noqa: E402  (the samples need PyTorch)
from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

import train_yolov2

from darknet2caffe import read_network
from tests.samples.needs_torch import WITHOUT_RANKS
from tests.samples.rectangles import ALONE, ANCHORS, CLASSES, SMALL, TINY, draw_set, tiny_network
from training.curve import read_log
from training.data import open_data, split
from training.settings import Settings
from yolov2_training import data
from yolov2_training.model import Model, save_model
from yolov2_training.recipe import Recipe
from yolov2_training.run import Run

pytestmark = [pytest.mark.usefixtures("one_thread", "no_figure"), WITHOUT_RANKS]


@pytest.mark.parametrize(("sizes", "size"), [("96", 96), ("64,128,96", 128)])
def test_anchors_figures_and_files_are_of_the_largest_size(
    rectangles: Path, tmp_path: Path, capsys, sizes: str, size: int
) -> None:
    line = ["--data", str(rectangles), *TINY, "--sizes", sizes, "--device", "cpu", "--steps", "2", "--hold-back", "0.2"]
    line += ["--evaluations", "1", "--output", str(tmp_path)]
    assert train_yolov2.main(line) == 0
    printed = capsys.readouterr().out
    note = ", the largest of --sizes" if "," in sizes else ""
    assert f"\nanchors, mAP50 and model.cfg are for {size} x {size} pixels{note}\n" in printed
    assert re.search(rf"mAP50 0\.\d{{3}} of [12] of 2 classes at {size} pixels: ", printed)
    network = read_network(tmp_path / "model.cfg")
    assert network.dims == (3, size, size)
    kept, _ = split(open_data([rectangles], "train.txt"), 0.2)
    anchors = data.kmeans_anchors(data.box_shapes(kept), cells=size // 32)
    torch.testing.assert_close(torch.tensor(network.layers[-1].plugin.anchors).view(5, 2), anchors, rtol=0, atol=1e-4)
    options = train_yolov2.parse([*line, "--resume"])
    with ExitStack() as held:
        run = Run(options, Settings(), ALONE, held)
        assert run.inputs.shape == (2, 3, size, size)
        assert run.loader.pool is not None
        assert (
            run.task._augmenter.pool is run.loader.pool
        )  # images are drawn from all photos, not from those of a batch
        assert run.task._name(1) == run.data.read(1).key
        run.loop.release()
    query = ["--data", str(rectangles), "--device", "cpu", "--model", str(tmp_path / "model.pt")]
    capsys.readouterr()
    assert train_yolov2.main([*query, "--evaluate", "train.txt"]) == 0
    assert f"(mean of 2 of 2 classes, at {size} x {size} pixels)" in capsys.readouterr().out


def test_a_class_without_held_back_boxes_is_no_part_of_the_log(tmp_path: Path, capsys) -> None:
    folder = draw_set(tmp_path / "set")
    (folder / "classes.txt").write_text("red\ngreen\nblue\n")
    line = ["--data", str(folder), *TINY, "--device", "cpu", "--steps", "1", "--hold-back", "0.5", "--output"]
    assert train_yolov2.main([*line, str(tmp_path / "out")]) == 0
    assert re.search(r"mAP50 0\.\d{3} of 2 of 3 classes at 64 pixels: red \S+ green \S+\n", capsys.readouterr().out)
    (row,) = read_log(tmp_path / "out/log.csv")
    assert row["classes"] == 2
    assert [name for name in row if name.startswith("AP50")] == ["AP50 red", "AP50 green"]
    assert row["mAP50"] == pytest.approx((row["AP50 red"] + row["AP50 green"]) / 2, rel=1e-4)


def test_boxes_that_were_cut_or_left_out_are_counted(tmp_path: Path, capsys) -> None:
    folder = draw_set(tmp_path / "set", 6)
    (folder / "labels/0.txt").write_text("0 0.5 0.5 0 0\n0 0.1 0.5 0.4 0.5\n")
    line = ["--data", str(folder), *TINY, "--device", "cpu", "--steps", "1", "--output", str(tmp_path / "out")]
    assert train_yolov2.main(line) == 0
    printed = capsys.readouterr().out
    assert "\n1 boxes cut at the photo's edge\n" in printed
    assert "\n1 boxes without an area in the photo, left out\n" in printed


REFUSED = {
    "hold-back 0.01": (["--hold-back", "0.01"], "of 10 photos it holds back 0"),
    "passthrough 7": (["--passthrough", "7"], "--passthrough 7: expected a multiple of 4"),
    "one value": (["--sizes", "32", "--batch", "1"], "--sizes 32 with one photo a rank at a time"),
    "out is a file": (["--output", "{tmp}/file"], "--output {tmp}/file: {tmp}/file is a file, not a folder"),
    "out below a file": (["--output", "{tmp}/file/out"], "--output {tmp}/file/out: {tmp}/file is a file, not a folder"),
    "out with ranks": (["--output", "{tmp}/file", "--gpus", "2"], "{tmp}/file is a file, not a folder"),
    "device": (["--device", "gpu"], "--device gpu: no such device"),
    "start": (["--start", "{tmp}/no.pt"], "--start {tmp}/no.pt: {tmp}/no.pt is not there"),
    "start's names": (["--start", "{tmp}/a.cfg"], "--start {tmp}/a.cfg: {tmp}/a.names is not there"),
    "start of another kind": (["--start", "{tmp}/file"], "{tmp}/file: not a file of tensors, or damaged"),
    "teacher": (["--teacher", "{tmp}/no.cfg"], "--teacher {tmp}/no.cfg: {tmp}/no.cfg is not there"),
    "teacher's weights": (["--teacher", "{tmp}/b.cfg"], "--teacher {tmp}/b.cfg: {tmp}/b.weights is not there"),
    "no list": (["--data", "{tmp}/images"], "the list train.txt is missing"),
    "no model": (["--evaluate", "all", "--model", "{tmp}/no.pt"], "--model {tmp}/no.pt: {tmp}/no.pt is not there"),
    "no such list": (["--evaluate", "val.txt", "--model", "{tmp}/model.pt"], "the list val.txt is missing"),
    "other weights": (
        ["--evaluate", "all", "--model", "{tmp}/wrong.pt"],
        "{tmp}/wrong.pt: not a model of this sample: its tensor",
    ),
    "other widths": (["--start", "{tmp}/model.pt"], "--start {tmp}/model.pt: a network of other widths or classes"),
    "a tensor": (["--evaluate", "all", "--model", "{tmp}/tensor.pt"], "{tmp}/tensor.pt: not a model of this sample"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_said_at_the_start(rectangles: Path, tmp_path: Path, capsys, case: str) -> None:
    """In one line with the cause, and the next command; nothing is trained, and no folder is made."""
    for name in ("file", "a.cfg", "a.weights", "b.cfg"):
        (tmp_path / name).touch()
    model, widths = (
        Model(tiny_network(2), ANCHORS, CLASSES),
        {"stages": (4, 8, 8, 8, 16, 16), "head": 16, "passthrough": 4},
    )
    save_model(tmp_path / "model.pt", model, Recipe(**widths))
    save_model(tmp_path / "wrong.pt", model, Recipe(**SMALL))
    torch.save(torch.zeros(2), tmp_path / "tensor.pt")
    draw_set(tmp_path / "other").rename(tmp_path / "images")
    (tmp_path / "images/train.txt").unlink()
    given, cause = (
        [part.replace("{tmp}", str(tmp_path)) for part in parts] for parts in (REFUSED[case][0], [REFUSED[case][1]])
    )
    line = [
        "--data",
        str(rectangles),
        *TINY,
        "--steps",
        "4",
        "--device",
        "cpu",
        "--output",
        str(tmp_path / "out"),
        *given,
    ]
    assert train_yolov2.main(line) == 1
    printed = capsys.readouterr()
    first, do = printed.err.rstrip("\n").split("\n")
    assert cause[0] in first
    assert do.startswith("Do: ")
    assert "step" not in printed.out
    assert not (tmp_path / "out").exists()
