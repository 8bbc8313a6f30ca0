"""Small networks, and the files that onnxruntime's tools write of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime as ort
from onnx import parser

from tests.randomness import generator

RNG = generator(4)


def f(*shape):
    return RNG.standard_normal(shape).astype(np.float32) * np.float32(0.3)


def network(text, weights, opset=17):
    """A network from ONNX text, and its weights."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()
    )
    return model


def convolutional(opset=17):
    """Convolutions with LeakyRelu and Relu, a residual, a pool, a concatenation, a mean over the image, and a Gemm."""
    text = """
        g (float[1,3,16,16] x) => (float[1,5] y) {
            c1 = Conv <pads = [1,1,1,1]> (x, w1, b1)
            r1 = LeakyRelu <alpha = 0.1> (c1)
            c2 = Conv <pads = [1,1,1,1]> (r1, w2, b2)
            s = Add (c2, r1)
            r2 = Relu (s)
            p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r2)
            c3 = Conv (p, w3, b3)
            g3 = Sigmoid (c3)
            m3 = Mul (c3, g3)
            a3 = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1]> (p)
            k = Concat <axis = 1> (m3, a3)
            h = GlobalAveragePool (k)
            v = Flatten (h)
            y = Gemm <transB = 1> (v, w4, b4) }"""
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 8, 1, 1), "w4": (5, 16)}
    weights = {name: f(*shape) for name, shape in shapes.items()}
    weights |= {f"b{name[1:]}": f(shape[0]) for name, shape in shapes.items()}
    return network(text, weights, opset), {"x": f(1, 3, 16, 16) * 4}


def perceptron(opset=17):
    """Products with constant matrices, GELU between them."""
    text = """
        g (float[2,6,16] x) => (float[2,6,8] y) <float root = {1.41421356}, float one = {1.0}, float half = {0.5}> {
            p = MatMul (x, w1)
            a = Add (p, b1)
            d = Div (a, root)
            e = Erf (d)
            o = Add (e, one)
            m = Mul (a, o)
            h = Mul (m, half)
            q = MatMul (h, w2)
            y = Add (q, b2) }"""
    weights = {"w1": f(16, 32), "b1": f(32), "w2": f(32, 8), "b2": f(8)}
    return network(text, weights, opset), {"x": f(2, 6, 16) * 4}


def encoder(opset=17):
    """A layer of a transformer: attention of four heads, residuals, norms, a perceptron."""
    heads = "\n".join(
        f"""{name}p = MatMul (x, w{name})
            {name}b = Add (b{name}, {name}p)
            {name}s = Reshape ({name}b, split)
            {name} = Transpose <perm = {perm}> ({name}s)"""
        for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
    )
    text = f"""
        g (float[2,6,16] x) => (float[2,6,16] y) <int64[4] split = {{0, 0, 4, 4}}, int64[3] flat = {{0, 0, 16}}, float root = {{2.0}},
                float gr = {{1.41421356}}, float one = {{1.0}}, float half = {{0.5}}> {{
            {heads}
            qk = MatMul (q, k)
            sc = Div (qk, root)
            so = Softmax <axis = -1> (sc)
            mi = MatMul (so, v)
            mt = Transpose <perm = [0, 2, 1, 3]> (mi)
            mf = Reshape (mt, flat)
            op = MatMul (mf, wo)
            ob = Add (bo, op)
            r1 = Add (ob, x)
            n1 = LayerNormalization <axis = -1, epsilon = 0.00001> (r1, g1, h1)
            p = MatMul (n1, w1)
            a = Add (p, b1)
            d = Div (a, gr)
            e = Erf (d)
            o = Add (e, one)
            m = Mul (a, o)
            h = Mul (m, half)
            u = MatMul (h, w2)
            ub = Add (u, b2)
            r2 = Add (ub, n1)
            y = LayerNormalization <axis = -1, epsilon = 0.00001> (r2, g2, h2) }}"""
    weights = {f"w{name}": f(16, 16) for name in "qkvo"} | {f"b{name}": f(16) for name in "qkvo"}
    weights |= {"w1": f(16, 32), "b1": f(32), "w2": f(32, 16), "b2": f(16)}
    weights |= {name: f(16) + np.float32(1) for name in ("g1", "g2")} | {name: f(16) for name in ("h1", "h2")}
    return network(text, weights, opset), {"x": f(2, 6, 16) * 4}


def recurrent(opset=17):
    """A bidirectional LSTM before a product."""
    text = """
        g (float[5,2,4] x) => (float[5,2,3] y) {
            l = LSTM <hidden_size = 6, direction = "bidirectional"> (x, w, r, b)
            t = Transpose <perm = [0, 2, 1, 3]> (l)
            s = Reshape (t, shape)
            y = MatMul (s, w2) }"""
    weights = {"w": f(2, 24, 4), "r": f(2, 24, 6), "b": f(2, 48), "w2": f(12, 3), "shape": np.array([0, 0, 12])}
    return network(text, weights, opset), {"x": f(5, 2, 4) * 4}


NETWORKS = {
    "convolutional": convolutional,
    "perceptron": perceptron,
    "encoder": encoder,
    "recurrent": recurrent,
}
BASIC, EXTENDED, ALL = (
    getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{name}") for name in ("BASIC", "EXTENDED", "ALL")
)


def optimized(model, level, folder):
    """The file that onnxruntime writes of a model when it has optimized it."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def copy_of(model):
    """A copy: the tools write into what they are given."""
    return onnx.ModelProto.FromString(model.SerializeToString())


def quantized(model, feeds, folder, form, types, by_channel):
    """What ``quantize_static`` writes; ``types`` are those of activations and weights."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.batches = iter([feeds])

        def get_next(self):
            return next(self.batches, None)

    with _quiet():
        quantization.quantize_static(
            copy_of(model),
            folder / "quantized.onnx",
            Reader(),
            quant_format=quantization.QuantFormat[form],
            activation_type=quantization.QuantType[types[0]],
            weight_type=quantization.QuantType[types[1]],
            per_channel=by_channel,
        )
    return onnx.load(folder / "quantized.onnx")


def quantized_dynamically(model, folder, weights):
    """What ``quantize_dynamic`` writes."""
    from onnxruntime import quantization

    with _quiet():
        quantization.quantize_dynamic(
            copy_of(model), folder / "dynamic.onnx", weight_type=quantization.QuantType[weights]
        )
    return onnx.load(folder / "dynamic.onnx")


def packed(model, bits, form, block_size=16, symmetric=True):
    """What ``matmul_nbits_quantizer`` writes."""
    from onnxruntime.quantization import QuantFormat, matmul_nbits_quantizer

    if form == "QDQ":
        model = onnx.version_converter.convert_version(model, 21)
        model.ir_version = 10
    config = matmul_nbits_quantizer.DefaultWeightOnlyQuantConfig(
        block_size=block_size, is_symmetric=symmetric, bits=bits, quant_format=QuantFormat[form]
    )
    with _quiet():
        quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(copy_of(model), algo_config=config)
        quantizer.process()
    return quantizer.model.model


def in_float16(model):
    """What the float16 converter writes."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(copy_of(model), keep_io_types=True)
