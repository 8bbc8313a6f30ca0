"""docs/fields.md: its programs and commands run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from tests.model.networks import network, node  # noqa: E402

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "docs" / "fields.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
PYTHON = [text for kind, text in BLOCKS if kind == "python"]
SHELL = [text for kind, text in BLOCKS if kind == "sh"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fields")
    (path / "prelu.py").write_text(PYTHON[0], "utf-8")
    np.save(path / "slope.npy", np.array([0.25, 0.5]))
    return path


def shell(folder, command):
    """What a command prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    words = command.split()
    words = [sys.executable, *(["-m", "pytrtplugins"] if words[0] == "pytrt" else []), *words[1:]]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("line", SHELL[0].splitlines())
def test_a_layer_with_weights_is_checked_as_the_page_says(folder, line):
    assert re.search(r"PRelu\(slope=array\(float32, shape=\([23],\)\)\): ok", shell(folder, line))


def test_the_values_of_a_node_become_fields_as_the_page_says(folder):
    for tensor, extra in (("model.act.slope", ""), ("onnx::PRelu_31", PYTHON[2])):
        weight = onnx.numpy_helper.from_array(np.full((3, 1, 1), 0.25, np.float32), tensor)
        model = network([node("PRelu", f"x {tensor}", "y", "/prelu")], ("N", 3, 4, 4))
        model.graph.initializer.append(weight)
        onnx.save(model, folder / "model.onnx")
        lines = PYTHON[1].splitlines(keepends=True)
        text = "".join(extra if extra and line.startswith("graph.replace") else line for line in lines)
        (folder / "place.py").write_text(text, "utf-8")
        shell(folder, "python place.py")
        (found,) = onnx.load(folder / "edited.onnx").graph.node
        assert (found.domain, list(found.input)) == ("acme", ["x"])
        assert onnx.numpy_helper.to_array(found.attribute[0].t).tolist() == [[[0.25]]] * 3


def test_a_check_on_own_data_runs_as_the_page_says(folder):
    (folder / "rows.py").write_text(PYTHON[3], "utf-8")
    np.save(folder / "table.npy", np.arange(12.0).reshape(4, 3))
    program, command = SHELL[1].splitlines()
    assert shell(folder, program) == ""
    assert "Rows(): ok" in shell(folder, command)


def test_the_decomposition_of_the_page_passes_its_check(folder):
    (folder / "fast.py").write_text(PYTHON[4], "utf-8")
    assert shell(folder, "python fast.py") == ""
