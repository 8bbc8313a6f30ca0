"""FP16 and BF16 on the reference engine: storage in 16 bits, sums in float32."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.engines.reference.half import matmul_half
from pytrtplugins.errors import UsageError
from pytrtplugins.passes import prepare
from pytrtplugins.passes.half import to_half
from pytrtplugins.tensor import DType
from tests.engines.model_parts import parsed
from tests.engines.networks import Affine, conv_net, image
from tests.engines.networks import run as run_engine


def run(model, inputs, precision, **options):
    return run_engine(ptp.build(model, engine="reference", precision=precision, **options), inputs)


def rounded(array, precision):
    return array.astype(DType("float16" if precision == "fp16" else "bfloat16").numpy).astype(np.float32)


def sum_net(weights):
    return parsed(f"(float[1,{len(weights)}] x) => (float[] y) {{ y = MatMul (x, w) }}", 18, 10, w=weights)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_result_is_that_of_rounded_inputs_and_weights_rounded_once(precision):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 500)).astype(np.float32), rng.normal(size=(500, 3)).astype(np.float32)
    wide = rounded(x, precision).astype(np.float64) @ rounded(w, precision).astype(np.float64)
    found = run(sum_net(w), {"x": x}, precision)["y"]
    np.testing.assert_array_equal(found, rounded(wide.astype(np.float32), precision))


def test_sums_are_not_taken_in_float16():
    x = np.ones((1, 5000), np.float32)
    found = run(sum_net(np.ones((5000, 1), np.float32)), {"x": x}, "fp16")["y"]
    assert found.item() == 5000  # in float16, 2048 + 1 is 2048


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_what_is_too_large_overflows_as_the_type_does(precision):
    found = run(sum_net(np.full((4, 1), 30000, np.float32)), {"x": np.ones((1, 4), np.float32)}, precision)["y"]
    assert found.item() == (np.inf if precision == "fp16" else 119808)


def test_plugins_and_activations_compute_on_half_numbers():
    exact, half = (run(conv_net(Affine(3.0)), {"data": image()}, name)["y"] for name in ("fp32", "fp16"))
    assert half.dtype == np.float32
    assert 0 < np.abs(half - exact).max() < 0.02


def test_a_layer_that_is_kept_and_its_neighbour_exchange_float32():
    model = prepare(conv_net())
    mixed = to_half(model, DType.FLOAT16, keep=["conv1", "leaky1", "conv2"])
    found, wanted = run(mixed, {"data": image()}, "fp16"), run(model, {"data": image()}, "fp32")
    np.testing.assert_array_equal(found["y"], wanted["y"])
    assert not any(node.op_type == "Cast" for node in mixed.graph.node)


def test_half_weights_of_a_layer_in_float32_are_rounded_and_widened():
    model = prepare(conv_net())
    mixed = to_half(model, DType.FLOAT16, keep=["conv1", "leaky1", "conv2"], half_weights=["conv2"])
    kinds = {tensor.name: tensor.data_type for tensor in mixed.graph.initializer}
    assert kinds == {"w1": TensorProto.FLOAT, "b1": TensorProto.FLOAT, "w2_float16": TensorProto.FLOAT16}
    w2 = next(tensor for tensor in model.graph.initializer if tensor.name == "w2")
    w2.CopyFrom(numpy_helper.from_array(rounded(numpy_helper.to_array(w2), "fp16"), "w2"))
    found, wanted = run(mixed, {"data": image()}, "fp16"), run(model, {"data": image()}, "fp32")
    np.testing.assert_array_equal(found["y"], wanted["y"])


def test_a_written_model_stays_as_it_is():
    mixed = to_half(prepare(conv_net()), DType.FLOAT16, keep=["conv2"])
    assert to_half(mixed, DType.FLOAT16).SerializeToString() == mixed.SerializeToString()
    onnx.checker.check_model(mixed, full_check=True)


def test_weights_beyond_float16_become_infinite_where_that_is_wanted():
    model = prepare(sum_net(np.float32([[1e6]])))
    half = to_half(model, DType.FLOAT16, refuse_overflow=False)
    assert run(half, {"x": np.ones((1, 1), np.float32)}, "fp16")["y"].item() == np.inf


def test_sums_in_float16_are_rounded_after_every_sixteen_products():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(3, 40)), rng.normal(size=(40, 5))
    expected = np.zeros((3, 5), np.float16)
    for first in (0, 16, 32):
        expected = (expected + left[:, first : first + 16] @ right[first : first + 16]).astype(np.float16)
    np.testing.assert_array_equal(matmul_half(left, right), expected)


def test_sums_are_float16_where_the_setting_says_so():
    """2,048 + 1 + 1: float16 has no odd numbers there."""
    x = np.zeros((1, 48), np.float32)
    x[:, :16], x[:, 16], x[:, 32] = 128, 1, 1
    model, found = sum_net(np.ones((48, 1), np.float32)), {}
    for sums in ("float32", "float16"):
        found[sums] = run(model, {"x": x}, "fp16", settings={"sums": sums})["y"].item()
    assert found == {"float32": 2050, "float16": 2048}


def test_other_sums_are_refused():
    with pytest.raises(UsageError, match="sums: expected float32 or float16, found 'bf16'"):
        ptp.build(conv_net(), engine="reference", precision="fp16", settings={"sums": "bf16"})
