"""The benchmark of loaders, on a CPU and with small photos."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')
pytest.importorskip("spdl.pipeline", reason='its loaders need spdl-core (pip install "pytrtplugins[train]")')

from benchmarks.training import loaders  # noqa: E402
from benchmarks.training.photos import DrawnPhotos  # noqa: E402

SMALL = ["--device", "cpu", "--samples", "16", "--photo-size", "64x48", "--side", "32", "--batch", "4", "--ahead", "2"]
SMALL += ["--workers", "0", "--step", "1", "--seconds", "0.05"]


def test_each_loader_has_a_row_and_the_page_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--docs", str(tmp_path / "docs"), "--json", str(tmp_path / "record.json")]
    assert loaders.main([*SMALL, *files]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    names = ["resident", "DataLoader, 0 workers", "SPDL, CPU", "SPDL, nvJPEG (torchvision)", "SPDL, nvImageCodec"]
    assert [row["name"] for row in record["rows"]] == names
    for row in record["rows"][:3]:
        assert row["same"] == "equal"
        assert row["rate"] * row["step_ms"] / 1e3 == pytest.approx(4)  # a batch
        assert row["share"] == pytest.approx(row["data_ms"] / row["step_ms"])
        assert row["step_ms"] > 1
        assert row["alone"] > 0
        assert row["busy"].keys() == {"read", "decode", "staging", "step"}
    for row in record["rows"][3:]:
        assert "decodes on a GPU" in row["reason"]
    text = (tmp_path / "docs" / "training_benchmarks.md").read_text()
    assert "16 drawn photos of 64x48" in text
    assert "Step: a stand-in of 1 ms" in text
    assert text.count("| equal |") == 3
    steps = {row["name"]: row["step_ms"] for row in record["rows"]}
    less = 1 - steps["resident"] / steps["DataLoader, 0 workers"]
    assert re.search(rf"^\| resident \|.*\| {less:.0%} \|", text, re.MULTILINE)
    assert text.count("Not measured") == 2
    with Image.open(tmp_path / "docs/images/training-loaders-this-machine.png") as image:
        assert min(image.size) > 100
    capsys.readouterr()
    assert loaders.main(["--record", str(tmp_path / "record.json"), "--docs", str(tmp_path / "docs")]) == 0
    assert (tmp_path / "docs" / "training_benchmarks.md").read_text() == text


def test_rows_that_give_other_batches_are_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare = loaders._compare

    def disturbed(expected, found, subject):
        if subject.name == "SPDL, CPU":
            found[2]["pixels"][0, 0, 0, 0] ^= 1
        return compare(expected, found, subject)

    monkeypatch.setattr(loaders, "_compare", disturbed)
    assert loaders.main([*SMALL, "-k", "spdl, cpu", "--docs", str(tmp_path / "docs")]) == 0
    text = (tmp_path / "docs" / "training_benchmarks.md").read_text()
    assert "Not measured: SPDL, CPU: ValueError: pixels differ from those of resident: by 1" in text
    assert "| resident |" not in text  # it was only compared with


def test_drawn_photos_are_photos_of_their_size_with_boxes_of_their_own() -> None:
    photos = DrawnPhotos(70, 64, 48)
    first, again = photos.read(0), photos.read(64)
    assert first.image == again.image
    assert first.key != again.key
    assert not np.array_equal(first.boxes, again.boxes)
    assert first.boxes.shape == (3, 5)
    assert (first.boxes[:, 0] < len(photos.classes)).all()


def test_a_record_without_rows_writes_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert loaders.main([*SMALL, "--until", "0", "--docs", str(tmp_path / "docs")]) == 1
    assert "no row was finished" in capsys.readouterr().err
    assert not (tmp_path / "docs" / "training_benchmarks.md").exists()
