"""docs/comparison.md: TensorRT for RTX builds engines with the page's plugin."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.engines.tensorrt.creators import unregister
from tests.pages import blocks

from .rtx_builds import build_on_rtx, needs_rtx, types

pytestmark = needs_rtx
FILES = {block.title: block.text for block in blocks("docs/comparison.md") if block.title}
CHANNELS = 16


@pytest.fixture
def prelu(tmp_path, monkeypatch):
    """The class of the page, whose kernel lies beside its file."""
    for name in ("prelu.cu", "prelu.py"):
        (tmp_path / name).write_text(FILES[name])
    monkeypatch.syspath_prepend(tmp_path)
    from prelu import PRelu  # type: ignore[import-not-found]

    yield PRelu
    unregister(PRelu, package="tensorrt_rtx")
    del sys.modules["prelu"]


def network(cls) -> onnx.ModelProto:
    """Convolution → PRelu → convolution → convolution."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype(np.float32) * 0.1 for _ in range(3)]
    node = cls(slope=np.full(CHANNELS, 0.1, np.float32)).as_node(["a"], ["b"], "plugin")
    names = [("x", "a"), ("b", "c"), ("c", "y")]
    convolutions = [
        helper.make_node("Conv", [x, f"w{index}"], [y], name=f"conv{index}", pads=[1] * 4)
        for index, (x, y) in enumerate(names)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", CHANNELS, 8, 8)) for name in ("x", "y")]
    held = [numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(weights)]
    nodes = [convolutions[0], node, *convolutions[1:]]
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("acme", 1)]
    return helper.make_model(
        helper.make_graph(nodes, "net", ends[:1], ends[1:], held), opset_imports=opsets, ir_version=10
    )


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "Float"), ("fp16", "Half"), ("int8", "Float")])
def test_the_plugin_stands_in_the_engine_in_a_type_that_it_takes(prelu, precision, dtype):
    table = CalibrationTable(dict.fromkeys(("x", "a", "b", "c", "y"), np.float32(0.05)))
    options = {"calibration": table} if precision == "int8" else {}
    built = build_on_rtx(network(prelu), precision, **options)
    layer = built.plugin()
    assert (types(layer.inputs), types(layer.outputs)) == ([dtype], [dtype])
    if precision == "int8":
        reads = [layer.inputs[0].dtype for layer in built.layers if layer.kind == "correlation"]
        assert reads.count("Int8") == 2  # the last one stays in float
