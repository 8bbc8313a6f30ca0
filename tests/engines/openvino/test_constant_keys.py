"""Attention with keys that are the same in every run, in bfloat16: right on engine `cpu`, wrong in OpenVINO alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("openvino")

from pytrtplugins.engines import build
from pytrtplugins.engines.host.cpu_features import cpu_features
from pytrtplugins.engines.openvino.constant_keys import has_constant_keys
from tests.engines.operators import by_openvino

N, D, M = 6, 2, 3
QUERIES, KEYS, VALUES = (
    np.random.default_rng(seed).standard_normal((1, 2, rows, D)).astype(np.float32)
    for seed, rows in enumerate((M, N, N))
)


def attention(dtype=TensorProto.FLOAT, keys_are_computed=False, keys_are_given=False):
    """Keys are (1, heads, N, D) with a bias."""
    numpy_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    arrays = {"k": KEYS.astype(numpy_dtype), "bias": np.full(D, 0.5, numpy_dtype), "v": VALUES.astype(numpy_dtype)}
    inputs = [helper.make_tensor_value_info("q", dtype, QUERIES.shape)]
    if keys_are_computed:
        del arrays["k"]
        inputs.append(helper.make_tensor_value_info("k", dtype, KEYS.shape))
    nodes = [
        helper.make_node("Add", ["k", "bias"], ["shifted"]),
        helper.make_node("Transpose", ["shifted"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", dtype, (1, 2, M, D))]
    if keys_are_given:
        outputs.append(helper.make_tensor_value_info("shifted", dtype, (1, 2, N, D)))
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected():
    scores = QUERIES @ (KEYS + 0.5).swapaxes(-1, -2)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ VALUES


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.BFLOAT16])
@pytest.mark.parametrize("bf16", ["measured", "always"])
@pytest.mark.parametrize("given", [False, True])
def test_engine_cpu_is_right(dtype, bf16, given):
    with build(
        attention(dtype, keys_are_given=given), engine="cpu", threads=1, settings={"bf16": bf16}
    ).create_context() as context:
        y = context.run({"q": QUERIES.astype(helper.tensor_dtype_to_np_dtype(dtype))})["y"]
    np.testing.assert_allclose(y.astype(np.float32), expected(), atol=0.05)


def test_openvino_alone_is_still_wrong():
    if not cpu_features() & {"bf16", "amx-bf16"}:
        pytest.skip("this CPU has no bfloat16")
    (result,) = by_openvino(attention(), {"q": QUERIES}, "bf16")
    assert not np.allclose(result, expected(), atol=0.05)


@pytest.mark.parametrize(("computed", "found"), [(False, True), (True, False)])
def test_constant_keys_are_found(computed, found):
    import openvino

    network = openvino.Core().read_model(attention(keys_are_computed=computed).SerializeToString())
    assert has_constant_keys(network) is found


def test_weights_of_a_layer_are_no_keys():
    import openvino

    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3,4] x) => (float[2,3,5] y) <float[4,5] w> { z = MatMul (x, w) y = Softmax <axis = -1> (z) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.add().CopyFrom(numpy_helper.from_array(np.ones((4, 5), np.float32), "w"))
    assert not has_constant_keys(openvino.Core().read_model(model.SerializeToString()))
