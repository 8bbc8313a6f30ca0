"""ScalarBounds: which bounds of Clip get a Reshape, and that it changes no value."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.bounds import ScalarBounds
from pytrtplugins.passes import run_passes
from tests.engines.operators import literal


def clip(bound):
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, float{bound} b) => (float[2] y) {{ y = Clip (x, b) }}'
    )


def test_a_bound_of_free_size_is_one_number_or_an_error():
    model = clip("[N]")
    result = run_passes(model, ScalarBounds())
    assert [node.op_type for node in result.graph.node] == ["Reshape", "Clip"]
    feeds = {"x": np.array([1, 3], np.float32), "b": np.array([2], np.float32)}
    np.testing.assert_array_equal(literal(result, feeds)[0], literal(model, feeds)[0])
    with pytest.raises(Exception, match=r"[Rr]eshape"):
        literal(result, feeds | {"b": np.ones(2, np.float32)})


@pytest.mark.parametrize("bound", ["", "[1]"])
def test_a_bound_of_one_number_stays(bound):
    model = clip(bound)
    assert run_passes(model, ScalarBounds()) is model
