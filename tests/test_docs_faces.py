"""Pages about faces can be followed as they stand, on a small network with PReLU whose slopes lie along the wrong axis."""

import numpy as np
import onnx
import pytest

from pytrtplugins.vision import save_image
from tests.mlops.tables.people import network, photos
from tests.pages import ROOT, Reader


def broken():
    """The slopes as MXNet has them, (C)."""
    model = network()
    for tensor in model.graph.initializer:
        if tensor.name in ("slope", "steep"):
            del tensor.dims[1:]
    return model


@pytest.fixture
def folder(tmp_path):
    """A folder with the files that the page names."""
    onnx.save(broken(), tmp_path / "broken.onnx")
    images = photos(people=40, each=10)
    np.savez(tmp_path / "faces.npz", **images)
    for name in ("s1/1.png", "s1/2.png", "s7/3.png"):
        path = tmp_path / "people" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        save_image(images[name], path)
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    return tmp_path


@pytest.mark.usefixtures("short_measurements")
def test_the_page_can_be_followed(folder):
    pytest.importorskip("matplotlib")
    later = "pytrt table face.onnx --task verification --data faces.npz --pixels 0..255 --engine cpu --precision"
    without = ("pytrt precision search", "python samples/face_story.py", "python -m benchmarks.gpu.onnx_file", later)
    reader = Reader(folder)
    for page in ("docs/how-to/faces.md", "docs/how-to/faces_precision.md", "docs/lab/faces_gpu.md"):
        reader.follow(page, without=without, codes={"pytrt repair broken.onnx": 1})
    rows = [line for line in (folder / "table.md").read_text().splitlines() if line.startswith("| cpu int8")]
    assert len(rows) == 6
    assert (folder / "fused.svg").exists()
    assert (folder / "table.html").exists()
    with np.load(folder / "arrays" / "0199.npz") as last:
        assert last["data"].shape == (1, 3, 112, 112)
