"""Operators of onnxruntime's, written with ONNX's: onnxruntime gives the same numbers for both, node by node."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest

from pytrtplugins.passes import prepare
from pytrtplugins.passes.contrib.table import BODIES
from pytrtplugins.passes.contrib.write import declare_contrib_domain, needed_opset
from tests.engines.operators import literal
from tests.passes.contrib.cases import CONTRIB, codes, f, model_of, step

F, U8, I8 = np.float32, np.uint8, np.int8
STEP = F(0.03)
OPSETS = {
    "(float[2,2] x) => (float[2,2] y) { y = Relu (x) }": 0,
    "(float[2,2] x) => (float[2,2] y) { y = com.microsoft.FusedMatMul (x, x) }": 13,
    "(float[2,2] x, float[2] w) => (float[2,2] y) { y = com.microsoft.SkipLayerNormalization (x, x, w) }": 17,
    "(int8[2] x) => (float[2] y) <float s = {2}> { y = com.microsoft.DequantizeLinear (x, s) }": 13,
    "(int8[2] x) => (float16[2] y) <float16 s = {2}> { y = com.microsoft.DequantizeLinear (x, s) }": 19,
    "(int8[2] x) => (float16[2] y) { y = Cast <to = 10> (x)  z = com.microsoft.FusedMatMul (y, y) }": 13,
    "(int16[2] x) => (float[2] y) <float s = {2}, int16 z = {0}> { y = com.microsoft.DequantizeLinear (x, s, z) }": 21,
}


@pytest.mark.parametrize("text", OPSETS)
def test_the_opset_is_the_first_in_which_the_bodies_mean_what_they_say(text):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13, "com.microsoft" : 1]> g {text}')
    assert needed_opset(model) == OPSETS[text]


X = f(2, 6, 16)
IDS = np.array([[1, 2, 3, 9, 0], [4, 4, 7, 1, 2]], np.int32)
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]], np.int32)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
KEYS = np.array([[1, 1, 0, 1, 1, 0], [1, 0, 1, 1, 1, 1]], np.int32)
TABLES = [f(10, 16), f(8, 16), f(2, 16), f(16), f(16)]
W, B = f(16, 48) * F(0.3), f(48)
Q, K, V = f(2, 6, 16), f(2, 5, 16), f(2, 5, 16)


def case(op, *inputs, **options):
    return op, inputs, options


ACTIVATIONS = {
    **{kind: {} for kind in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")},
    **{
        "LeakyRelu": {"activation_alpha": 0.2},
        "Elu": {"activation_alpha": 0.7},
        "ThresholdedRelu": {"activation_alpha": 0.3},
    },
    **{
        "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4},
        "Selu": {"activation_alpha": 1.2, "activation_gamma": 1.3},
    },
}
FUSED = {
    "conv, relu": case("FusedConv", f(1, 4, 8, 8), f(4, 2, 3, 3), group=2, activation="Relu"),
    **{
        f"conv, {kind}": case(
            "FusedConv",
            f(1, 4, 8, 8),
            f(4, 4, 3, 3),
            activation=kind,
            **({"activation_params": values} if values else {}),
        )
        for kind, values in {"HardSigmoid": [0.3, 0.4], "LeakyRelu": [0.2], "Sigmoid": [], "Tanh": []}.items()
    },
    **{
        f"gemm, {kind}": case("FusedGemm", f(3, 8), f(8, 5), activation=kind, **numbers)
        for kind, numbers in ACTIVATIONS.items()
    },
    "conv, leaky": (
        "FusedConv",
        [f(1, 3, 8, 8), f(4, 3, 3, 3), f(4)],
        {"activation": "LeakyRelu", "activation_params": [0.2], "pads": [1] * 4},
    ),
    "conv, sum, clip": (
        "FusedConv",
        [f(1, 3, 8, 8), f(4, 3, 3, 3), f(4), f(1, 4, 8, 8)],
        {"free": (0, 3), "activation": "Clip", "activation_params": [-0.5, 0.5], "pads": [1] * 4},
    ),
    "gemm, leaky": (
        "FusedGemm",
        [f(3, 8), f(5, 8), f(5)],
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    "gemm without a summand": case("FusedGemm", f(8, 3), f(8, 5), activation="Relu", transA=1),
    "matmul, factor": case("FusedMatMul", f(2, 8, 3), f(2, 8, 5), free=(0, 1), transA=1, alpha=0.3),
    "matmul, batch first": case("FusedMatMul", f(8, 2, 3), f(2, 8, 5), free=(0, 1), transBatchA=1, transA=1),
    "matmul, batch inside": case("FusedMatMul", f(2, 4, 3, 8), f(8, 2, 4, 5), free=(0, 1), transBatchB=1),
    "matmul of a vector": case("FusedMatMul", f(8), f(2, 8, 5), free=(0, 1), transA=1),
    "gelu": case("Gelu", X),
    "gelu behind a bias": case("BiasGelu", X, f(16)),
    "fast gelu": case("FastGelu", X),
    "fast gelu behind a bias": case("FastGelu", X, f(16)),
    "quick gelu": case("QuickGelu", X),
    "quick gelu, factor": case("QuickGelu", X, alpha=1.5),
    "skip": case("SkipLayerNormalization", X, f(2, 6, 16), f(16), free=(0, 1)),
    "skip with all": case(
        "SkipLayerNormalization", X, f(6, 16), f(16), f(16), f(16), free=(0, 1), outputs=(0, 3), epsilon=1e-5
    ),
    "skip of opset 13": case("SkipLayerNormalization", X, f(1, 6, 16), f(16), f(16), free=(0, 1), version=13),
    "skip, mean squares": case(
        "SkipSimplifiedLayerNormalization", X, f(2, 6, 16), f(16), f(16), free=(0, 1), outputs=(0, 3)
    ),
    "mean squares": case("SimplifiedLayerNormalization", X, f(16), domain="", epsilon=1e-5, axis=-1),
    "norm of opset 12": case("LayerNormalization", X, f(16), f(16), domain="", version=12, epsilon=1e-5, axis=-1),
    "words": case("EmbedLayerNormalization", IDS, SEGMENTS, *TABLES, MASK, free=(0, 1, 7), outputs=(0, 1, 2)),
    "words without segments": case(
        "EmbedLayerNormalization", IDS, None, TABLES[0], TABLES[1], None, TABLES[3], TABLES[4], outputs=(0, 1)
    ),
    "words and places": (
        "EmbedLayerNormalization",
        [IDS, None, TABLES[0], TABLES[1], None, TABLES[3], TABLES[4], None, IDS % 8],
        {"free": (0, 8), "outputs": (0, 1)},
    ),
    "NHWC pool": case("NhwcMaxPool", codes(U8, 1, 6, 6, 4), kernel_shape=[2, 2], strides=[2, 2]),
}

HEADS = {"num_heads": 4}
ATTENTION = {
    "plain": case("Attention", X, W, B, **HEADS),
    "without a bias": case("Attention", X, W, **HEADS),
    "mask": case("Attention", X, W, B, KEYS, **HEADS, free=(0, 3), mask_filter_value=-3.0, scale=0.7),
    "lengths": case("Attention", X, W, B, np.array([3, 6], np.int32), **HEADS, free=(0, 3)),
    "a mask for each query": case(
        "Attention", X, W, B, codes(np.int8, 2, 6, 6).clip(0, 1).astype(np.int32), **HEADS, free=(0, 3)
    ),
    "causal, past, mask": (
        "Attention",
        [X, W, B, np.concatenate([KEYS, np.ones((2, 3), np.int32)], 1), f(2, 2, 4, 3, 4)],
        dict(HEADS, free=(0, 3, 4), outputs=(0, 1), unidirectional=1),
    ),
    "bias of scores": case("Attention", X, W, B, None, None, f(1, 1, 6, 6), **HEADS, free=(0, 5)),
    "narrow values": case("Attention", X, W[:, :40], B[:40], **HEADS, qkv_hidden_sizes=[16, 16, 8]),
    "three inputs": case("MultiHeadAttention", Q, K, V, B, **HEADS, free=(0, 1, 2)),
    "three inputs, narrow values": case("MultiHeadAttention", Q, K, f(2, 5, 8), f(40), **HEADS, free=(0, 1, 2)),
    "three inputs, mask": case("MultiHeadAttention", Q, K, V, None, MASK, **HEADS, free=(0, 1, 2, 4)),
    "three inputs, bias of scores": case(
        "MultiHeadAttention", Q, K, V, None, None, f(1, 4, 6, 5), **HEADS, free=(0, 1, 2, 5)
    ),
    "three inputs, past": (
        "MultiHeadAttention",
        [Q, f(2, 6, 16), f(2, 6, 16), None, None, None, f(2, 4, 3, 4), f(2, 4, 3, 4)],
        dict(HEADS, free=(0, 1, 2, 6, 7), outputs=(0, 1, 2)),
    ),
    "three inputs, causal": case(
        "MultiHeadAttention", Q, f(2, 6, 16), f(2, 6, 16), **HEADS, free=(0, 1, 2), unidirectional=1
    ),
    "three inputs, causal, past": (
        "MultiHeadAttention",
        [Q, f(2, 6, 16), f(2, 6, 16), None, None, None, f(2, 4, 3, 4), f(2, 4, 3, 4)],
        dict(HEADS, free=(0, 1, 2, 6, 7), outputs=(0, 1, 2), unidirectional=1),
    ),
    "keys in heads": case("MultiHeadAttention", Q, f(2, 4, 5, 4), f(2, 4, 5, 4), **HEADS, free=(0, 1, 2)),
    "codes": (
        "QAttention",
        [codes(U8, 2, 6, 16), codes(I8, 16, 48), B, F(0.002), step(48), KEYS, U8(128), np.zeros(48, I8)],
        dict(HEADS, free=(0, 5)),
    ),
    "codes, causal": (
        "QAttention",
        [codes(U8, 2, 6, 16), codes(U8, 16, 48), B, F(0.002), F(0.01), None, U8(128), U8(120)],
        dict(HEADS, unidirectional=1),
    ),
    "words of codes": (
        "QEmbedLayerNormalization",
        [IDS, SEGMENTS, *(codes(U8, *table.shape) for table in TABLES), MASK, *step(5), *U8([120, 130, 110, 125, 100])],
        {"free": (0, 1, 7), "outputs": (0, 1)},
    ),
}


def packed():
    """Weights of 2, 4 and 8 bits, with and without zero points."""
    for bits, size, depth in ((4, 16, 32), (4, 32, 40), (8, 32, 40), (2, 32, 64)):
        blocks, filters = -(-depth // size), 6
        weights, steps = codes(U8, filters, blocks, size * bits // 8), step(filters * blocks)
        sizes = {"bits": bits, "block_size": size, "K": depth, "N": filters}
        for zeros in (None, codes(U8, filters * -(-blocks * bits // 8))):
            yield (
                f"{bits} bits, {size}, {zeros is None}",
                case("MatMulNBits", f(2, 3, depth), weights, steps, zeros, **sizes),
            )
    yield (
        "zero points in float",
        case(
            "MatMulNBits", f(3, 32), codes(U8, 6, 2, 8), step(12), f(12), None, f(6), bits=4, block_size=16, K=32, N=6
        ),
    )
    table_sizes = {"free": (1,), "bits": 4, "block_size": 32}
    for zeros in (None, codes(U8, 10, 1)):
        table = [codes(U8, 10, 32), IDS, step(10, 2), zeros]
        yield f"rows, {zeros is None}", case("GatherBlockQuantized", *table, **table_sizes, quantize_axis=1)
    for zeros in (None, codes(U8, 10, 3, 1)):
        table = [codes(U8, 10, 3, 20), IDS, step(10, 3, 2), zeros]
        yield f"rows of matrices, {zeros is None}", case("GatherBlockQuantized", *table, **table_sizes, quantize_axis=2)
    for kind in (ml_dtypes.int4, ml_dtypes.uint4):
        for opset in (17, 21):
            for zeros in (None, codes(U8, 10, 2).astype(kind)):
                table = [codes(U8, 10, 40).astype(kind), IDS, step(10, 2), zeros]
                name = f"rows of {np.dtype(kind).name}, {opset}, {zeros is None}"
                yield name, case("GatherBlockQuantized", *table, **table_sizes, version=opset, quantize_axis=-1)
    table = [codes(U8, 40, 3, 10).astype(ml_dtypes.int4), IDS, step(2, 3, 10)]
    yield "columns of int4", case("GatherBlockQuantized", *table, **table_sizes, quantize_axis=0, gather_axis=2)


def classic():
    """Operators of ai.onnx.ml that compute floats alone, and onnxruntime's Range."""
    ml, signed, some = {"domain": "ai.onnx.ml"}, f(4, 3), f(4, 3)
    some[1, 2] = np.nan
    for name, x in (("float", signed), ("int64", np.arange(12).reshape(4, 3) - 5)):
        yield f"columns {name}", case("ArrayFeatureExtractor", x, np.array([[2, 0]]), **ml)
        yield f"scaled {name}", case("Scaler", x, **ml, offset=[0.5, 1.0, -2.0], scale=[2.0, 0.25, 3.0])
        yield f"one scale {name}", case("Scaler", x, **ml, offset=[0.5], scale=[2.0])
    many = {"coefficients": [0.5, -1.0, 2.0, 1.0, 0.0, 3.0], "intercepts": [0.1, 0.2], "targets": 2}
    yield "regressor", case("LinearRegressor", signed, **ml, coefficients=[0.5, -1.0, 2.0])
    yield "two regressors", case("LinearRegressor", signed, **ml, **many)
    yield "column of a vector", case("ArrayFeatureExtractor", f(5), np.array([3]), **ml)
    yield "binarized", case("Binarizer", signed, **ml, threshold=0.25)
    yield "NaN imputed", case("Imputer", some, **ml, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=np.nan)
    yield "0 imputed", case("Imputer", np.maximum(signed, 0), **ml, imputed_value_floats=[9.0])
    for norm in ("MAX", "L1", "L2"):
        yield f"normalized {norm}", case("Normalizer", np.concatenate([signed, np.zeros((1, 3), F)]), **ml, norm=norm)
    yield "range", case("Range", np.int64(2), np.array(9), np.int64(3), free=(1,))
    yield "range of a step", case("Range", np.array(2, F), F([9]), free=(0,))


def quantized():
    """Operators between DequantizeLinear and QuantizeLinear."""
    for kind in (U8, I8):
        a, b, name = codes(kind, 2, 3, 4, 4), codes(kind, 2, 3, 4, 4), np.dtype(kind).name
        z, z2, z3 = kind(99), kind(50), kind(10)
        pool = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}
        yield f"add {name}", case("QLinearAdd", a, STEP, z, b, F(0.02), z2, F(0.05), z3, free=(0, 3))
        yield f"mul {name}", case("QLinearMul", a, STEP, z, b, F(0.02), z2, F(0.05), z3, free=(0, 3))
        yield f"leaky {name}", case("QLinearLeakyRelu", a, STEP, z, F(0.04), z2, alpha=0.1)
        yield f"sigmoid {name}", case("QLinearSigmoid", a, STEP, z, F(1 / 256), z2)
        for opset in (12, 13):
            data = [a, STEP, z, F(1 / 256), kind(np.iinfo(kind).min)]
            yield f"softmax {opset} {name}", case("QLinearSoftmax", *data, axis=1, opset=opset)
        yield f"pool {name}", case("QLinearAveragePool", a, STEP, z, F(0.02), z2, **pool)
        yield f"NHWC pool {name}", case("QLinearAveragePool", a, STEP, z, F(0.02), z2, **pool, channels_last=1)
        yield f"global pool {name}", case("QLinearGlobalAveragePool", a, STEP, z, F(0.02), z2, channels_last=0)
        yield f"concat {name}", case("QLinearConcat", STEP, z3, a, STEP, z, b, F(0.02), z2, free=(2, 5), axis=1)
        yield f"where {name}", case("QLinearWhere", a > 9, a, STEP, z, b, F(0.02), z2, STEP, z3, free=(0, 1, 4))
    for kind, weights_kind in ((U8, I8), (U8, U8), (I8, I8)):
        for by_filter in (False, True):
            name = f"{np.dtype(kind).name} {np.dtype(weights_kind).name}{' by filter' * by_filter}"
            yield from _products(kind, weights_kind, by_filter, name)


def _products(kind, weights_kind, by_filter, name):
    def weights(count):
        return (step(count), np.zeros(count, weights_kind)) if by_filter else (F(0.02), weights_kind(3))

    bias = codes(np.int16, 4).astype(np.int32)
    for domain, dims, more in (("", (1, 4, 6, 6), {}), (CONTRIB, (1, 6, 6, 4), {"channels_last": 1})):
        data = [codes(kind, *dims), STEP, kind(99), codes(weights_kind, 4, 2, 3, 3), *weights(4), F(0.5), kind(7), bias]
        if not (domain and kind is I8):  # onnxruntime has no kernel
            yield f"conv {domain} {name}", case("QLinearConv", *data, **more, domain=domain, group=2, pads=[1] * 4)
    steps, zeros = weights(4)
    x, codes_2d = codes(kind, 2, 3, 8), codes(weights_kind, 8, 4)
    yield f"matmul {name}", case("QLinearMatMul", x, STEP, kind(7), codes_2d, steps, zeros, F(0.2), kind(5), domain="")
    gemm = [x[0], STEP, kind(7), codes_2d, steps, zeros]
    yield f"gemm {name}", case("QGemm", *gemm, bias, F(0.2), kind(5), alpha=1.0)
    yield (
        f"turned gemm {name}",
        (
            "QGemm",
            [x[0], STEP, kind(7), codes(weights_kind, 4, 8), steps, zeros, None, F(0.2), kind(5)],
            {"transB": 1, "alpha": 0.5},
        ),
    )
    yield f"gemm to float {name}", case("QGemm", *gemm, bias, alpha=1.0)
    yield f"matmul to float {name}", case("MatMulIntegerToFloat", x, codes_2d, STEP, steps, kind(7), zeros, f(4))
    if kind is U8:
        yield f"dynamic {name}", case("DynamicQuantizeMatMul", f(2, 3, 8), codes_2d, steps, zeros, f(4))
        yield f"dynamic without zeros {name}", case("DynamicQuantizeMatMul", f(2, 3, 8), codes_2d, steps)


CASES = {**FUSED, **ATTENTION, **dict(packed()), **dict(classic()), **dict(quantized())}


@pytest.mark.parametrize("case", CASES)
def test_it_computes_what_the_operator_does(case):
    op, inputs, options = CASES[case]
    if case == "without a bias" and ort.__version__ < "1.32":
        pytest.skip("onnxruntime 1.31 ends the process at an Attention without a bias")
    model, feeds = model_of(op, inputs, **options)
    written = prepare(model)
    assert {node.domain for node in written.graph.node} == {""}
    assert [(item.domain, item.version >= 13) for item in written.opset_import] == [("", True)]
    onnx.checker.check_model(written, full_check=True)
    for wanted, y in zip(literal(model, feeds), literal(written, feeds), strict=True):
        assert (y.dtype, y.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind in "iu":
            np.testing.assert_allclose(y.astype(int), wanted.astype(int), rtol=0, atol=1)  # one step
        else:
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)


def test_every_body_has_a_case():
    standard = ("QLinearConv", "QLinearMatMul")
    ml = {op for op, _, options in CASES.values() if options.get("domain") == "ai.onnx.ml"}
    ours = {("ai.onnx.ml" if op in ml else "" if op in standard else CONTRIB, op) for op, _, _ in CASES.values()}
    others = {"DequantizeLinear", "DynamicQuantizeLSTM", "NhwcFusedConv", "QuantizeLinear"}
    others |= {"FusedMatMulActivation", "QLinearReduceMean", "TransposeMatMul", "QLinearConv"}
    assert {key for key in BODIES if key not in ours} == {(CONTRIB, op) for op in others}


@pytest.mark.parametrize(
    ("op", "inputs", "options"),
    [
        (
            "QLinearAveragePool",
            [codes(U8, 1, 3, 4, 4), STEP, U8(99), F(0.02), U8(50)],
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1, "count_include_pad": 1},
        ),
        case("Attention", X, W, B, np.array([3, 6, 1, 2], np.int32), **HEADS, free=(0, 3)),
        case("MultiHeadAttention", Q, K, V, **HEADS, free=(0, 1, 2), unidirectional=1),
    ],
)
def test_what_it_cannot_write_stays(op, inputs, options):
    model, _ = model_of(op, inputs, **options)
    assert [node.op_type for node in prepare(model).graph.node] == [op]


def test_a_node_that_gives_nothing_stays():
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    )
    made.graph.node.append(onnx.helper.make_node("Gelu", ["x"], [], domain="com.microsoft"))
    prepared = prepare(made)
    x = np.array([-1, 2], F)
    np.testing.assert_array_equal(literal(prepared, {"x": x})[0], [0, 2])


@pytest.mark.parametrize("imports", [False, True])
@pytest.mark.parametrize(
    ("operator", "opset", "moves"),
    [
        ("LayerNormalization", 16, True),
        ("LayerNormalization", 17, False),
        ("SimplifiedLayerNormalization", 21, True),
        ("Relu", 16, False),
    ],
)
def test_operators_that_onnx_has_not_yet_are_put_into_onnxruntimes_domain(operator, opset, moves, imports):
    more = ', "com.microsoft": 1' * imports
    text = f'<ir_version: 8, opset_import: ["": {opset}{more}]> g (float[2] x, float[2] s) => (y) {{ y = {operator} (x, s) }}'
    given = onnx.parser.parse_model(text)
    found = declare_contrib_domain(given)
    assert found.graph.node[0].domain == ("com.microsoft" if moves else "")
    assert sorted(item.domain for item in found.opset_import) == ["", *["com.microsoft"] * (imports or moves)]
    assert (found is given) == (not moves)
