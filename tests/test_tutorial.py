"""The tutorial: every program and every command of its pages, in their order, as a reader would type them."""

import shutil

import numpy as np
import pytest

from tests.pages import Reader

pytest.importorskip("openvino")
onnx = pytest.importorskip("onnx")

PAGES = (
    "docs/start/tutorial.md",
    "docs/start/tutorial_weights.md",
    "docs/start/tutorial_network.md",
    "docs/start/tutorial_engines.md",
)
ELSEWHERE = (
    "pip ",
    "trtexec ",
    "pytrt build snake.onnx --plugins snake.py --engine tensorrt",
    "pytrt export-plugin snake.py:Snake -o libsnake.so",
)
"""Commands for machines with a network, or with TensorRT; tests/test_docs_commands.py has them parsed."""


def test_a_reader_who_follows_the_tutorial_sees_what_it_shows(tmp_path):
    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("no C++ compiler: kernels do not run on NumPy arrays (apt-get install g++)")
    reader = Reader(tmp_path)
    for page in PAGES:
        reader.follow(page, without=ELSEWHERE)
    (node,) = [node for node in onnx.load(tmp_path / "snake.onnx").graph.node if node.domain == "acme"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(node.attribute[0].t), np.load(tmp_path / "alpha.npy"))
    loaded = "import pytrtplugins, snake; print(pytrtplugins.load_engine('snake.engine').precision)"
    assert reader.python(loaded) == "int8\n"
