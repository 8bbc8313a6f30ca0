"""Dims that ONNX's own inference gives."""

import onnx
import pytest

from pytrtplugins.model.proto import info_dims
from pytrtplugins.validation.inference import infer_unchanged


@pytest.mark.parametrize(
    "nodes",
    [
        "s = Shape (x)  t = Reshape (x, s)",
        "s = Shape (x)  t = Expand (x, s)",
        "s = Shape (x)  r = Slice (s, one, two)  p = Concat <axis = 0> (r, one)  t = Reshape (w, p)",
    ],
)
def test_dims_that_are_computed_from_dims_are_known(nodes):
    text = f"(float[2,3] x, float[3] w) => (float[a,b] y) <int64[1] one = {{1}}, int64[1] two = {{2}}> {{ {nodes}  y = Relu (t) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    dims = {info.name: info_dims(info) for info in infer_unchanged(model).graph.value_info}
    assert dims["t"] == ((3, 1) if "Concat" in nodes else (2, 3))
