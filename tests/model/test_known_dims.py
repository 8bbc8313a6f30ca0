"""Dims and types that ONNX's own inference gets wrong or leaves out, as onnxruntime gives them; ONNX's errors are still there."""

import numpy as np
import onnx
import onnxruntime
import pytest

from pytrtplugins.validation import infer

SIGNAL = {"x": np.zeros((2, 12, 1), np.float32)}
QKV = {name: np.ones((2, 3, 8), np.float32) for name in "qkv"}
MODELS = {
    "one frame too many": (
        "17 (float[2, 12, 1] x) => (float y) <int64 step = {3}, float[4] window = {1, 1, 1, 1}> { y = STFT(x, step, window) }",
        SIGNAL,
    ),
    "a length of the run": (
        "20 (float[A, B, C, 1] x, int64 n) => (float y) { y = DFT(x, n) }",
        {"x": np.ones((2, 3, 12, 1), np.float32), "n": np.array(5)},
    ),
    "heads of free width": (
        "23 (float[N, L, W] q, float[N, K, W] k, float[N, K, V] v) => (float y) "
        "{ y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) }",
        QKV,
    ),
    "a size that is whole in float32 alone": (
        "18 (float[N, 1, 9, 11] x) => (float y) <float[2] s = {0.5555556, 0.6363636}> { y = Resize <axes = [2, 3]> (x, , s) }",
        {"x": np.ones((2, 1, 9, 11), np.float32)},
    ),
    "a size that is whole in float32 alone, before opset 10": (
        "9 (float[2, 1, 9, 11] x) => (float y) <float[4] s = {1, 1, 1.8888888, 2}> { y = Upsample(x, s) }",
        {"x": np.ones((2, 1, 9, 11), np.float32)},
    ),
    "products of heads of free width": (
        "23 (float[N, L, W] q, float[N, K, W] k, float[N, K, V] v) => (float y) "
        '{ o, "", "", y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) }',
        QKV,
    ),
    "scales of eight axes": (
        "18 (float[1, 1, 1, 1, 1, 1, 9, 11] x) => (float y) "
        "<float[8] s = {1, 1, 1, 1, 1, 1, 0.5555556, 0.6363636}> { y = Resize(x, , s) }",
        {"x": np.ones((1, 1, 1, 1, 1, 1, 9, 11), np.float32)},
    ),
    "an output shape": (
        "11 (float[2, 1, 4, 3, 4] x) => (float y) <float[1, 1, 1, 2, 1] w = {1, 1}> "
        "{ y = ConvTranspose <output_shape = [4, 2, 4]> (x, w) }",
        {"x": np.ones((2, 1, 4, 3, 4), np.float32)},
    ),
}


def parsed(text):
    opset, _, graph = text.partition(" ")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {graph}')
    model.graph.output[0].ClearField("type")
    return model


def dims(model, inputs):
    """Sizes that are told, with free dims as the inputs have them."""
    sizes = {
        dim.dim_param: size
        for info in model.graph.input
        for dim, size in zip(info.type.tensor_type.shape.dim, inputs[info.name].shape, strict=True)
    }
    found = model.graph.output[0].type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param or "unknown") for dim in found]


def given(model, inputs):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)


def agree(told, shape):
    return len(told) == len(shape) and all(dim in (None, size) for dim, size in zip(told, shape, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_dims_are_those_that_the_operator_gives(name):
    text, inputs = MODELS[name]
    (y,) = given(parsed(text), inputs)
    found = infer(parsed(text))
    assert agree(dims(found, inputs), y.shape)
    assert found.graph.node == parsed(text).graph.node
    assert found.opset_import == parsed(text).opset_import


@pytest.mark.parametrize("name", MODELS)
def test_onnx_is_still_wrong(name):
    text, inputs = MODELS[name]
    (y,) = given(parsed(text), inputs)
    assert not agree(dims(onnx.shape_inference.infer_shapes(parsed(text), data_prop=True), inputs), y.shape)


def test_heads_with_an_axis_of_their_own_are_not_counted_as_heads_in_the_width():
    """No attention has keys of another rank: onnxruntime refuses it when it runs, and until then the declared dims stand."""
    model = parsed(
        "23 (float[2, 2, 3, 4] q, float[2, 5, 8] k, float[2, 5, 8] v) => (float y) "
        "{ y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) }"
    )
    model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    assert infer(model).graph.output[0].type == model.graph.input[0].type


def test_a_type_that_onnx_leaves_out_is_that_of_the_inputs_that_are_alike():
    text = (
        "21 (float[N, 4, 3] x) => (float y) <float[4] one = {1, 1, 1, 1}> "
        "{ z = GroupNormalization <num_groups = 2> (x, one, one) y = Relu(z) }"
    )
    assert not onnx.shape_inference.infer_shapes(parsed(text)).graph.output[0].type.tensor_type.elem_type
    assert infer(parsed(text)).graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
