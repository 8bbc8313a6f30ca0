"""docs/how-to/graph.md does what it says."""

import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError
from tests.model.networks import documented_layers, network, node, run, weights
from tests.pages import read, texts

TEXT = read("docs/how-to/graph.md")
PROGRAMS = texts("docs/how-to/graph.md", "python")
MESSAGES = texts("docs/how-to/graph.md", "text")
LAYERS = documented_layers("tests.graph.docs")


def models():
    """The network with an operator that nobody knows, and the same with a shuffle as exporters write it."""
    first = node("Conv", "x k11", "a", "Conv_11", pads=[1, 1, 1, 1])
    rest = [node("Conv", "b k13", "c", "Conv_13", strides=[2, 2]), node("Relu", "c", "y", "Relu_15")]
    shuffle = [
        node("Reshape", "a s1", "r", "Reshape_12"),
        node("Transpose", "r", "t", "Transpose_13", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "t s2", "b", "Reshape_14"),
    ]
    kernels, dims = {"k11": weights(16, 8, 3, 3), "k13": weights(32, 16, 2, 2)}, ("N", 8, 16, 16)
    unknown = network([first, node("Shuffle", "a", "b", "Unsupported_12", domain="vendor"), *rest], dims, **kernels)
    unknown.graph.value_info.append(helper.make_tensor_value_info("b", 1, ["N", 16, 16, 16]))
    shapes = {"s1": np.array([0, 4, 4, 16, 16]), "s2": np.array([0, 16, 16, 16])}
    return unknown, network([first, *shuffle, *rest], dims, **kernels, **shapes)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that the page speaks of."""
    for name, model in zip(("model.onnx", "exported.onnx"), models(), strict=True):
        onnx.save(model, tmp_path / name)
    (tmp_path / "mylayers.py").write_text(LAYERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mylayers", raising=False)
    monkeypatch.syspath_prepend(tmp_path)


def test_its_programs_run_and_print_what_they_say(folder, capsys):
    names = dict[str, Any]()
    for program in PROGRAMS:
        exec(program, names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "<Graph of 4 nodes: x (N, 8, 16, 16) -> y (N, 32, 8, 8)>"
    assert printed[1] == "'Conv_11' (Conv)"
    assert printed[5] == "N 16 16 16"
    assert all(f"# {line}" in TEXT for line in (printed[0], printed[5]))
    assert [info.name for info in names["graph"].nodes] == [
        "Conv_11",
        "ChannelShuffle",
        "Reshape_14",
        "Conv_13",
        "Relu_15",
    ]
    x = np.random.default_rng(1).standard_normal((2, 8, 16, 16), np.float32)
    edited = ptp.load_onnx("exported.onnx")
    edited.replace("Reshape_14", names["ChannelShuffle"](groups=4), inputs=["a"])
    np.testing.assert_array_equal(run(edited, x)["y"], run(onnx.load("exported.onnx"), x)["y"])

    graph = ptp.load_onnx("model.onnx")
    with pytest.raises(ModelError) as unknown:
        graph.replace("Unsuported_12", names["ChannelShuffle"]())
    from mylayers import Halve  # type: ignore[import-not-found]

    with pytest.raises(ModelError) as unfit:
        graph.replace("Unsupported_12", Halve())
    assert [str(unknown.value).split(), str(unfit.value).split()] == [text.split() for text in MESSAGES]
