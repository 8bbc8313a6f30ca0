"""The whole way of a face network, run as a user runs it, from MXNet's files of a small network with PReLU."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

from tests.mlops.tables.people import photos
from tests.mxnet.files import face
from tests.pages import ROOT

SIZE = 20
SCRIPT = ROOT / "samples" / "face_story.py"


def story(folder, *words):
    """Exit code and all output."""
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    return found.returncode, found.stdout + found.stderr


def exported(path, repaired):
    """What MXNet's exporter makes of the network: slopes with one axis."""
    model = onnx.load(repaired)
    slopes = {node.input[1] for node in model.graph.node if node.op_type == "PRelu"}
    for tensor in model.graph.initializer:
        if tensor.name in slopes:
            del tensor.dims[1:]
    onnx.save(model, path)


@pytest.mark.slow
def test_from_mxnets_files_to_the_table(tmp_path):
    symbol, params = face(size=SIZE).write(tmp_path)
    edge = [(0, SIZE - 16), (0, SIZE - 16), (0, 0)]
    faces = {name: np.pad(photo, edge) for name, photo in photos(people=8, each=4).items()}
    np.savez(tmp_path / "faces.npz", **faces)
    options = ["--faces", "faces.npz", "--calibration-size", "8", "--batch", "1", "--engine", "cpu"]
    code, text = story(tmp_path, symbol, params, *options, "-o", "story")
    assert code == 0, text
    assert "leaves height and width free: here they are those of the faces" in text
    assert f"--shape data=3x{SIZE}x{SIZE}" in text
    assert "nodes become" in text
    assert "true positives at 0.001 false positives" in text
    rows = json.loads((tmp_path / "story/table.json").read_text())["rows"]
    assert len(rows) == 3  # FP32, and INT8 with two calibrations
    assert {path.name for path in (tmp_path / "story").iterdir()} == {
        "face.onnx", "fused.svg", "table.html", "table.json", "table.md"
    }  # fmt: skip

    exported(tmp_path / "broken.onnx", tmp_path / "story/face.onnx")
    options += ["--precision", "fp32", "--shape", f"data=3x{SIZE}x{SIZE}", "--export", "broken.onnx"]
    code, text = story(tmp_path, symbol, params, *options, "-o", "again")
    assert code == 0, text
    assert "leaves height" not in text
    assert "2 faults" in text
    assert "largest difference between the repaired export and MXNet's files: 0" in text


def test_a_command_that_fails_ends_the_story(tmp_path):
    code, text = story(tmp_path, "none.json", "none.params", "--faces", "faces.npz")
    assert code != 0
    assert "$ pytrt import mxnet none.json none.params" in text
    assert "Traceback" not in text
