"""Attention with keys that are the same in every run, in bfloat16: right on engine `cpu`, wrong in OpenVINO alone."""

import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip("openvino")

from pytrtplugins.engines import build
from pytrtplugins.engines.openvino.constant_keys import has_constant_keys
from pytrtplugins.utils.cpu_features import cpu_features
from tests.engines.model_parts import parsed
from tests.engines.networks import run
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
    kind = "float" if dtype == TensorProto.FLOAT else "bfloat16"
    if keys_are_computed:
        del arrays["k"]
    text = f"""({kind}{[*QUERIES.shape]} q {f", {kind}{[*KEYS.shape]} k" if keys_are_computed else ""})
        => ({kind}[1,2,{M},{D}] y {f", {kind}{[*KEYS.shape]} shifted" if keys_are_given else ""}) {{
        shifted = Add (k, bias)  turned = Transpose <perm = [0, 1, 3, 2]> (shifted)  scores = MatMul (q, turned)
        shares = Softmax <axis = -1> (scores)  y = MatMul (shares, v) }}"""
    return parsed(text, **arrays)


def expected():
    scores = QUERIES @ (KEYS + 0.5).swapaxes(-1, -2)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ VALUES


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.BFLOAT16])
@pytest.mark.parametrize("bf16", ["measured", "always"])
@pytest.mark.parametrize("given", [False, True])
def test_engine_cpu_is_right(dtype, bf16, given):
    built = build(attention(dtype, keys_are_given=given), engine="cpu", threads=1, settings={"bf16": bf16})
    y = run(built, {"q": QUERIES.astype(helper.tensor_dtype_to_np_dtype(dtype))})["y"]
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

    model = parsed(
        "(float[2,3,4] x) => (float[2,3,5] y) { z = MatMul (x, w) y = Softmax <axis = -1> (z) }",
        w=np.ones((4, 5), np.float32),
    )
    assert not has_constant_keys(openvino.Core().read_model(model.SerializeToString()))
