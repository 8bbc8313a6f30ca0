"""JoinsApart: which inputs of Concat stand behind Max, and that it changes no value."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.joins_apart import JoinsApart
from pytrtplugins.passes import run_passes
from tests.engines.operators import literal


def changed(text):
    model = onnx.shape_inference.infer_shapes(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    )
    return model, run_passes(model, JoinsApart())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("g (float[2,N] x, float[2,M] z) => (float[4,a] y) { y = Concat <axis=0> (x, z) }", 2),
        ("g (float[2,N] x, float[2,M] z) => (float[4,a] y) { p = Relu (x)  y = Concat <axis=-2> (p, z) }", 1),
        (
            "g (float[2,N] x, float[2,M] z) => (float[1,4,a] y) <int64[1] s = {0}>"
            "{ p = Unsqueeze (x, s)  q = Unsqueeze (z, s)  y = Concat <axis=1> (p, q) }",
            2,
        ),
        ("g (float[2,3] x, float[2,M] z) => (float[4,3] y) { y = Concat <axis=0> (x, z) }", 2),
    ],
)
def test_max_stands_before_a_concat_of_inputs_that_may_contradict(text, count):
    model, result = changed(text)
    assert [node.op_type for node in result.graph.node].count("Max") == count
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "z": np.ones((2, 3), np.float32)}
    np.testing.assert_array_equal(literal(result, feeds)[0], literal(model, feeds)[0])


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,N] x, float[2,N] z) => (float[4,N] y) { y = Concat <axis=0> (x, z) }",
        "g (float[2,N] x, float[3,M] z) => (float[5,a] y) { p = Relu (x)  q = Relu (z)  y = Concat <axis=0> (p, q) }",
        "g (float[2,N,3] x, float[2,N,M] z) => (float[2,N,a] y) { y = Concat <axis=2> (x, z) }",
        "g (float[2,N,2] x, float[2,N,M] z) => (float[2,a,2] y) { y = Concat <axis=1> (x, z) }",
    ],
)
def test_everything_else_stays(text):
    model, result = changed(text)
    assert result is model
