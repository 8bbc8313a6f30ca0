"""docs/comparison.md: TensorRT for RTX builds engines with the page's plugin."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.engines.tensorrt.creators import unregister
from tests.engines.model_parts import parsed
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
    weights = {
        f"w{index}": rng.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype(np.float32) * 0.1 for index in range(3)
    }
    text = f"""(float[N,{CHANNELS},8,8] x) => (float[N,{CHANNELS},8,8] y) {{
        a = Conv <pads = [1, 1, 1, 1]> (x, w0)  b = acme.PRelu (a)
        c = Conv <pads = [1, 1, 1, 1]> (b, w1)  y = Conv <pads = [1, 1, 1, 1]> (c, w2) }}"""
    model = parsed(text, 19, 10, ["acme"], **weights)
    model.graph.node[1].CopyFrom(cls(slope=np.full(CHANNELS, 0.1, np.float32)).as_node(["a"], ["b"], "plugin"))
    return model


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
