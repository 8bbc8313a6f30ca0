"""docs/how-to/training.md and docs/how-to/training_classifier.md can be followed as they stand, on drawn photos and with small networks."""

import pytest
from PIL import Image

pytest.importorskip("openvino")
pytest.importorskip("pycocotools")
pytest.importorskip("typer")

from pytrtplugins import load_engine
from pytrtplugins.models import read_description
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
    for line in "".join(texts("docs/how-to/training.md", "sh")).splitlines():
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
    assert read("docs/how-to/training.md").count("\n") < 100


NETWORK = """
from torch import nn

def small(classes):
    return nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))
"""


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
@pytest.mark.usefixtures("short_measurements")
def test_the_page_on_classifiers_can_be_followed(tmp_path):
    for number in range(12):
        place = tmp_path / "photos" / ("val" if number > 9 else "train") / ("cat", "dog")[number % 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 48), ("white", "black")[number % 2]).save(place)
    (tmp_path / "networks.py").write_text(NETWORK)
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    reader, printed = Reader(tmp_path), {}
    tiny = "--steps 2 --batch 4 --device cpu"
    for line in "".join(texts("docs/how-to/training_classifier.md", "sh")).splitlines():
        if line.startswith(("pip ", "pytrt serve")):
            continue
        line = line.replace("--hold-back 0.1 --steps 20000", f"--hold-back 0.2 {tiny}").replace(
            "--calibration-size 100", "--calibration-size 10"
        )
        printed[line] = reader.shell(line.replace("--model resnet50", "--model networks.py:small"))
    out = tmp_path / "runs/classes"
    assert {file.name for file in out.iterdir()} >= {"model.onnx", "model.names", "model.pt", "curve.png", "log.csv"}
    assert any("held back: top-1" in text for text in printed.values())
    table = (tmp_path / "classes.md").read_text()
    assert "top-1" in table
    assert "cpu int8, minmax on 10" in table
    assert read_description(load_engine(tmp_path / "classes.engine").model_without_weights).names == ("cat", "dog")
    for option in ("--data photos/val --evaluate all --start runs/classes/model.pt",):
        assert f"`{option}`" in read("docs/how-to/training_classifier.md")
        assert "2 photos of 2 classes: top-1" in reader.shell(
            f"python samples/train_classifier.py {option} --device cpu"
        )
