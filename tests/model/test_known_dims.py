"""Dims and types that ONNX's own inference gets wrong or leaves out, as onnxruntime gives them; ONNX's errors are still there."""

import numpy as np
import onnx
import onnxruntime
import pytest

from pytrtplugins.validation import infer
from pytrtplugins.validation.inference import infer_node
from pytrtplugins.validation.known_dims import correct_dims

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
    "heads of free width in rows of a known length": (
        "23 (float[N, 3, W] q, float[N, 3, W] k, float[N, 3, V] v) => (float y) "
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


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


HEADS = {name: random(2, heads, length, 4) for name, heads, length in (("q", 6, 3), ("k", 2, 5), ("v", 2, 5))}
PAST = {name: random(2, 2, 4, 4) for name in ("pk", "pv")}
ROWS = {"q": random(2, 3, 24), "k": random(2, 5, 8), "v": random(2, 5, 12)}
X4 = "(float[2, 6, 3, 4] q, float[2, 2, 5, 4] k, float[2, 2, 5, 4] v"
SHAPES = {  # each of a rule's branches, with all dims known; the output is y
    "attention": (f"23 {X4}) => (float y) {{ y = Attention(q, k, v) }}", HEADS),
    "attention's products": (f'23 {X4}) => (float y) {{ o, "", "", y = Attention(q, k, v) }}', HEADS),
    "attention's products with a past": (
        f'23 {X4}, float[2, 2, 4, 4] pk, float[2, 2, 4, 4] pv) => (float y) {{ o, a, b, y = Attention(q, k, v, "", pk, pv) }}',
        HEADS | PAST,
    ),
    **{
        f"attention of rows, output {place}": (
            "23 (float[2, 3, 24] q, float[2, 5, 8] k, float[2, 5, 12] v) => (float y) "
            f"{{ {outputs} = Attention <q_num_heads = 6, kv_num_heads = 2> (q, k, v) }}",
            ROWS,
        )
        for place, outputs in ((0, "y"), (3, 'o, "", "", y'))
    },
    **{
        f"STFT of {rank} axes, {bins}": (
            f"17 (float[{dims}] x) => (float y) <int64 step = {{{step}}}, float[5] window = {{1, 1, 1, 1, 1}}, int64 n = {{5}}> "
            f"{{ y = STFT <onesided = {bins}> (x, step, {more}) }}",
            {"x": random(*map(int, dims.split(", ")))},
        )
        for rank, dims in ((3, "2, 12, 1"), )
        for bins in (0, 1)
        for step, more in ((3, "window"), (1, '"", n'), (7, "window, n"))
    },
    **{
        f"DFT opset {opset} {words}": (
            f"{opset} (float[2, 7, 5, 1] x) => (float y) <int64 n = {{4}}, int64 axis = {{{axis}}}> {{ y = DFT {words} (x, {more}) }}",
            {"x": random(2, 7, 5, 1)},
        )
        for opset, words, axis, more in (
            (17, "<axis = 1>", 1, '""'), (17, "<axis = 1, onesided = 1>", 1, '""'), (17, "<axis = 2>", 1, "n"),
            (20, "<onesided = 1>", 1, '"", axis'), (20, "", 1, "n, axis"), (20, "<onesided = 1>", 2, '"", axis'), (20, "", -2, "n, axis"),
        )
    },
    **{
        f"ConvTranspose {words}": (
            f"11 (float[2, 4, 5, 6] x, float[4, 3, 2, 3] w) => (float y) {{ y = ConvTranspose <{words}> (x, w) }}",
            {"x": random(2, 4, 5, 6), "w": random(4, 3, 2, 3)},
        )
        for words in ("group = 2, output_shape = [6, 8]", "output_shape = [6, 8]", "strides = [2, 3]", "group = 4")
    },
    **{
        f"Resize {words} of {scales}": (
            f"18 (float[1, 2, 9, 11] x) => (float y) <float[{count}] s = {{{scales}}}> {{ y = Resize {words} (x, , s) }}",
            {"x": random(1, 2, 9, 11)},
        )
        for words, count, scales in (
            ("", 4, "1, 1, 0.5555556, 0.6363636"), ("<axes = [3, 2]>", 2, "0.6363636, 2"), ("<axes = [2]>", 1, "1.5"),
            ("", 4, "1, 2, 0.34, 1"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_all_dims_are_told_where_the_inputs_are_known(name):
    text, inputs = SHAPES[name]
    model = parsed(text)
    (y,), (node,) = given(model, inputs), model.graph.node
    assert dims(infer(model), inputs) == list(y.shape)
    data = {tensor.name: tensor for tensor in model.graph.initializer}
    types = {info.name: info.type for info in model.graph.input}
    types |= {name: onnx.helper.make_tensor_type_proto(each.data_type, each.dims) for name, each in data.items()}
    for domain in ("", "ai.onnx"):
        node.domain = domain
        found = infer_node(node, types, data, model.opset_import[0].version)["y"].tensor_type.shape.dim
        assert [dim.dim_value for dim in found] == list(y.shape)


def test_heads_with_an_axis_of_their_own_are_not_counted_as_heads_in_the_width():
    """No attention has keys of another rank: onnxruntime refuses it when it runs, and until then the declared dims stand."""
    model = parsed(
        "23 (float[2, 2, 3, 4] q, float[2, 5, 8] k, float[2, 5, 8] v) => (float y) "
        "{ y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) }"
    )
    model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    assert infer(model).graph.output[0].type == model.graph.input[0].type
    rows, maps = (onnx.helper.make_tensor_type_proto(1, dims) for dims in ([2, 3, 8], [2, 2, 5, 4]))
    found = {"y": onnx.helper.make_tensor_type_proto(1, [2, 3, 7])}
    correct_dims(model.graph.node[0], {"q": rows, "k": rows, "v": maps}, {}, found)
    assert [dim.dim_value for dim in found["y"].tensor_type.shape.dim] == [2, 3, 7]


def test_a_type_that_onnx_leaves_out_is_that_of_the_inputs_that_are_alike():
    text = (
        "21 (float[N, 4, 3] x) => (float y) <float[4] one = {1, 1, 1, 1}> "
        "{ z = GroupNormalization <num_groups = 2> (x, one, one) y = Relu(z) }"
    )
    assert not onnx.shape_inference.infer_shapes(parsed(text)).graph.output[0].type.tensor_type.elem_type
    assert infer(parsed(text)).graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
