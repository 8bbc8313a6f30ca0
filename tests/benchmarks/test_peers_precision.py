"""The comparison with other tools tells what a typed model keeps, and says so where a tool is missing."""

import sys

from benchmarks.peers_precision import kept, row
from pytrtplugins.passes import to_half
from pytrtplugins.tensor import DType
from tests.precision.planted import cancelling


def test_layers_that_a_typed_model_keeps_in_float32_are_named():
    model = cancelling()
    assert kept(to_half(model, DType.FLOAT16, keep=["left", "add"]), model) == ["left", "add"]
    assert kept(model, model) == [node.name for node in model.graph.node]


def test_a_row_has_the_search_and_the_reason_where_a_tool_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "modelopt.onnx.autocast", None)
    monkeypatch.setitem(sys.modules, "polygraphy.backend.onnx", None)
    cells = row("cancellation in `add`", tmp_path).split(" | ")
    assert cells[2] == "`left`, `right`, `add`"
    assert all("Error" in cell for cell in cells[4:])
