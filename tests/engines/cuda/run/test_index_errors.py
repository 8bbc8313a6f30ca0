"""What a node cannot run on is an error that names it, on arrays of the host: no index goes round, no dims are guessed."""

import numpy as np
import onnx
import pytest

from pytrtplugins.errors import DimsError, ExecutionError
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host

X = np.arange(3, dtype=np.float32)


def run(text, **inputs):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    return run_on_host(prepare(model), inputs)[0]


@pytest.mark.parametrize("index", [3, -4, 5000])
@pytest.mark.parametrize(
    ("operator", "dims", "updates"),
    [
        *(("Gather", "N", ""), ("GatherElements", "N", ""), ("GatherND", "N,1", "")),
        *(("ScatterElements", "N", "u"), ("ScatterND", "N,1", "u")),
    ],
)
def test_an_index_out_of_range_names_the_node(operator, dims, updates, index):
    text = f"(float[3] x, int64[{dims}] i{', float[N] u' if updates else ''}) => (float[a] y)"
    text += f"{{ y = {operator} (x, i{', u' if updates else ''}) }}"
    inputs = {"x": X, "i": np.array([0, index]).reshape([-1] + [1] * ("," in dims))} | ({"u": X[:2]} if updates else {})
    with pytest.raises(ExecutionError, match=rf"node 'y' \({operator}\) cannot run .*out of range"):
        run(text, **inputs)
    inputs["i"] = np.array([0, -3]).reshape(inputs["i"].shape)
    run(text, **inputs)


def test_dims_that_a_product_cannot_have_name_the_node():
    with pytest.raises(DimsError, match=r"node 'y' \(MatMul\) cannot run on tensors of the dims"):
        run(
            "(float[2,N] x, float[M,2] w) => (float[2,2] y) { y = MatMul (x, w) }",
            x=np.ones((2, 2), np.float32),
            w=np.ones((3, 2), np.float32),
        )
