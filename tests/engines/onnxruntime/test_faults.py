"""What onnxruntime's optimizer computes wrong is right in engine onnxruntime: NumPy and onnxruntime without optimizations say what is."""

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from pytrtplugins.engines import build
from pytrtplugins.engines.onnxruntime.faults import harmful_optimizers, with_zero_points
from tests.engines.model_parts import parsed
from tests.engines.networks import run
from tests.engines.operators import literal
from tests.passes.contrib.cases import codes, f, model_of

F, I8 = np.float32, np.int8


def _model(nodes, inputs, constants, rank):
    read = ", ".join(f"{str(x.dtype).removesuffix('32')}{[*x.shape]} {name}" for name, x in inputs.items())
    written = ",".join(f"d{axis}" for axis in range(rank))
    text = f"({read}) => (float[{written}] y) {{ {nodes} }}"
    return parsed(text, domains=["com.microsoft"], **constants)


def _run(model, inputs):
    engine = build(model, engine="onnxruntime", precision="fp32", threads=1, progress=False)
    return next(iter(run(engine, inputs).values()))


def _transposed_product(second):
    inputs = {"a": f(2, 3), "b": second}
    return _model("t = Transpose <perm = [1, 0]> (a)  y = MatMul (t, b)", inputs, {}, second.ndim), inputs


def test_a_transposed_matrix_times_a_vector_is_right():
    model, inputs = _transposed_product(f(2))
    np.testing.assert_allclose(_run(model, inputs), inputs["a"].T @ inputs["b"], rtol=1e-5)


def test_only_products_with_vectors_leave_an_optimizer_out():
    assert harmful_optimizers(_transposed_product(f(2))[0]) == ["MatmulTransposeFusion"]
    assert harmful_optimizers(_transposed_product(f(2, 4))[0]) == []


def test_signed_codes_without_a_zero_point_stay_signed():
    inputs = {"x": codes(I8, 2, 3, 4)}
    nodes = "d = DequantizeLinear (x, s)  t = Transpose <perm = [0, 2, 1]> (d)  y = MatMul (t, w)"
    model = _model(nodes, inputs, {"s": F(0.05), "w": f(3, 5)}, 3)
    assert (inputs["x"] < 0).any()
    np.testing.assert_allclose(_run(model, inputs), literal(model, inputs)[0], rtol=1e-4, atol=1e-4)


def test_a_zero_point_is_added_where_codes_are_signed_and_it_is_left_out():
    for dtype, count in ((I8, 3), (np.uint8, 2)):
        model, _ = model_of("DequantizeLinear", [codes(dtype, 2, 3), F(0.05)], domain="")
        assert len(with_zero_points(model).graph.node[0].input) == count


@pytest.mark.parametrize("op", ["FusedMatMul", "TransposeMatMul"])
def test_a_fused_product_with_a_vector_is_right(op):
    a, b = f(2, 3), f(2)
    model = _model(f"y = com.microsoft.{op} <transA = 1, alpha = 0.5> (a, b)", {"a": a, "b": b}, {}, 1)
    np.testing.assert_allclose(_run(model, {"a": a, "b": b}), 0.5 * (a.T @ b), rtol=1e-5)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(
    ("op", "function"),
    [("QLinearSigmoid", lambda x: 1 / (1 + np.exp(-x))), ("QLinearLeakyRelu", lambda x: np.maximum(x, 0.01 * x))],
)
def test_a_result_without_a_zero_point_does_not_end_the_process(op, function, opset):
    x = codes(np.uint8, 4, 5)
    node = f"y = com.microsoft.{op} (x, s, z, t)"
    model = _model(node, {"x": x}, {"s": F(0.04), "z": np.uint8(99), "t": F(0.02)}, 2)
    model.opset_import[0].version = opset
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    wanted = np.clip(np.rint(function((x.astype(float) - 99) * 0.04) / 0.02), 0, 255)
    np.testing.assert_allclose(_run(model, {"x": x}).astype(float), wanted, rtol=0, atol=1)
