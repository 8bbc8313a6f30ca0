"""docs/training.md can be followed as it stands, on drawn photos and with a small network."""

from __future__ import annotations

import pytest

pytest.importorskip("openvino")
pytest.importorskip("pycocotools")
pytest.importorskip("typer")

from tests.pages import ROOT, Reader, read, texts
from tests.samples.rectangles import TINY, draw_set

STEPS = "--steps 20000"


@pytest.fixture
def folder(tmp_path):
    """A folder with photos as the page describes them, one photo more, and the samples."""
    photos = draw_set(tmp_path / "photos", count=20)
    names = (photos / "train.txt").read_text().splitlines()
    (photos / "train.txt").write_text("\n".join(names[:16]))
    (photos / "val.txt").write_text("\n".join(names[16:]))
    (photos / "classes.txt").unlink()
    (photos / "data.yaml").write_text("train: train.txt\nval: val.txt\nnames: [red, green]\n")
    (tmp_path / "photo.jpg").write_bytes((photos / names[0]).read_bytes())
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    return tmp_path


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_the_page_can_be_followed(folder):
    reader, printed = Reader(folder), {}
    for line in "".join(texts("docs/training.md", "sh")).splitlines():
        if not line.startswith(("pip ", "pytrt serve", "curl")):
            printed[line] = reader.shell(line.replace(STEPS, f"--steps 2 {' '.join(TINY)} --device cpu"))
    assert sum(STEPS in line for line in printed) == 1
    out = folder / "runs/first"
    assert {file.name for file in out.iterdir()} == {
        *(".lock", "checkpoints", "curve.png", "log.csv", "model.cfg", "model.names", "model.pt", "model.weights"),
        *("model.cache", "model.cache.json"),
    }
    train, evaluate = (next(text for line, text in printed.items() if part in line) for part in (STEPS, "--evaluate"))
    assert train.startswith("14 photos, 2 held back; ")
    assert "(mean of 2 of 2 classes, at 64 x 64 pixels)" in evaluate
    assert (folder / "boxes.png").stat().st_size
    assert (folder / "first.engine").stat().st_size


def test_the_page_fits_on_two_screens():
    assert read("docs/training.md").count("\n") < 100
