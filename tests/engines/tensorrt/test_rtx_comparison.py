"""docs/reference/comparison_programs.md: TensorRT for RTX builds engines with the page's plugin."""

import sys

import numpy as np
import pytest

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.engines.tensorrt.creators import unregister
from tests.pages import blocks

from .rtx_builds import build_on_rtx, needs_rtx, types
from .test_rtx import network

pytestmark = needs_rtx
FILES = {block.title: block.text for block in blocks("docs/reference/comparison_programs.md") if block.title}


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


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "Float"), ("fp16", "Half"), ("int8", "Float")])
def test_the_plugin_stands_in_the_engine_in_a_type_that_it_takes(prelu, precision, dtype):
    table = CalibrationTable(dict.fromkeys(("x", "a", "b", "c", "y"), np.float32(0.05)))
    options = {"calibration": table} if precision == "int8" else {}
    built = build_on_rtx(network(prelu(slope=np.full(16, 0.1, np.float32))), precision, **options)
    layer = built.plugin()
    assert (types(layer.inputs), types(layer.outputs)) == ([dtype], [dtype])
    if precision == "int8":
        reads = [layer.inputs[0].dtype for layer in built.layers if layer.kind == "correlation"]
        assert reads.count("Int8") == 2  # the last one stays in float
