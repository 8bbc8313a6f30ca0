"""Dims that ONNX's own inference gives."""

import onnx
import pytest

from benchmarks.node_tests import load_cases
from pytrtplugins.model.proto import info_dims
from pytrtplugins.validation.inference import _may_have_values, infer_unchanged


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


def test_values_tell_nothing_of_the_models_in_which_none_are_looked_for():
    """Of ONNX's own tests of operators, whose dims are those that its inference finds with values too."""
    counts = {True: 0, False: 0}
    for model in (case.model for case in load_cases()):
        try:
            plain = onnx.shape_inference.infer_shapes(model)
        except onnx.shape_inference.InferenceError:
            continue
        counts[_may_have_values(plain)] += 1
        if not _may_have_values(plain):
            assert onnx.shape_inference.infer_shapes(plain, data_prop=True) == plain, model.graph.name
    assert counts[False] > counts[True] > 100
