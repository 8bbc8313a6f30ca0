"""A zero point that is computed, or read, counts as one that is a constant does: onnxruntime gives the same numbers."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx
from onnx import helper

from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.model_parts import info
from tests.engines.model_parts import model as model_of
from tests.engines.operators import literal
from tests.passes.contrib.cases import codes, f

F, I8, U8 = np.float32, np.int8, np.uint8
D, Q = "DequantizeLinear", "QuantizeLinear"
CASES = {
    "codes of an output": ([(Q, "x s z", "y", {})], {"x": f(2, 3, 4), "z": U8(90)}, {"s": F(0.05)}),
    "codes of an input": ([(D, "x s z", "y", {})], {"x": codes(I8, 2, 3), "z": I8(-7)}, {"s": F(0.05)}),
    "weights of a product": (
        [(D, "w s z", "v", {}), ("MatMul", "x v", "y", {})],
        {"x": f(2, 3), "z": I8(5)},
        {"w": codes(I8, 3, 4), "s": F(0.05)},
    ),
    "weights of a convolution": (
        [(D, "c s zero", "x", {}), (D, "w s z", "v", {}), ("Conv", "x v", "y", {})],
        {"c": codes(I8, 1, 3, 5, 5), "z": I8(5)},
        {"w": codes(I8, 4, 3, 3, 3), "s": F(0.05), "zero": I8(0)},
    ),
    "weights of a transposed convolution": (
        [(D, "w s z", "v", {}), ("ConvTranspose", "x v", "y", {"strides": [2, 2]})],
        {"x": f(1, 3, 4, 4), "z": I8(5)},
        {"w": codes(I8, 3, 4, 2, 2), "s": F(0.05)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_read(name):
    nodes, inputs, constants = CASES[name]
    made = [helper.make_node(op, reads.split(), [result], **at) for op, reads, result, at in nodes]
    infos = [info(key, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for key, x in inputs.items()]
    model = model_of(made, infos, [onnx.ValueInfoProto(name="y")], constants)
    feeds = {key: np.asarray(value) for key, value in inputs.items()}
    wanted = literal(model, feeds)[0]
    result = run_on_host(prepare(model), feeds)[0]["y"]
    assert result.dtype == wanted.dtype
    np.testing.assert_allclose(result.astype(F), wanted.astype(F), rtol=1e-4, atol=1e-3)
