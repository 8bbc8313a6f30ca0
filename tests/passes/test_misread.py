"""What onnxruntime misreads: wrong there as it is, right once it is written otherwise."""

import numpy as np
import onnx
import pytest

from benchmarks.forms.oracles import run_literal
from pytrtplugins.passes import normalize

CASES = {
    "a pool with auto_pad and ceil_mode": (
        '{ y = MaxPool <auto_pad = "VALID", ceil_mode = 1, kernel_shape = [3, 2], strides = [2, 1]> (x) }',
        (1, 3, 3, 4),  # ceil((8 - 3 + 1) / 2)
    ),
    "a Resize that keeps the aspect ratio along axes from the end": (
        '<int64[2] s = {16, 15}> { y = Resize <mode = "nearest", axes = [-2, -1], keep_aspect_ratio_policy = "not_larger"> (x, , , s) }',
        (1, 3, 16, 10),
    ),
    "the same with an axis from the beginning": (
        "<int64[3] s = {2, 20, 15}> { y = Resize "
        '<mode = "nearest", axes = [0, -2, -1], keep_aspect_ratio_policy = "not_larger"> (x, , , s) }',
        (2, 3, 16, 10),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_gives_the_dims_of_onnx(name):
    text, dims = CASES[name]
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 19]> g (float[1, 3, 8, 5] x) => (float y) {text}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    x = np.arange(120, dtype=np.float32).reshape(1, 3, 8, 5)
    before, after = (run_literal(each, {"x": x})[0] for each in (model, normalize(model)))
    assert after.shape == dims
    assert before.shape != dims
