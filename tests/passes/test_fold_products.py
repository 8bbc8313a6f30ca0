"""BatchNormalization behind Gemm and MatMul, held against onnxruntime."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.passes import prepare, to_ir, to_proto
from tests.engines.cuda.host import run_on_host

from .test_fold import NORM, arrays, computed, constants_of, fold, kinds, norm, other, run


def product(nodes, constants, *, rank=2, outputs=("y",), dtype=TensorProto.FLOAT):
    """A network of x (3, 5), or of more axes before them, → (3, 4)."""
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", dtype, [2, 4, 5][3 - rank :])],
        [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def operands(*, transposed=False, bias=(4,), seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    values = arrays(4, seed=seed, dtype=dtype)
    values["w"] = rng.standard_normal((4, 5) if transposed else (5, 4)).astype(dtype)
    values["b"] = rng.standard_normal(bias).astype(dtype)
    return values


def gemm(bias=True, **attributes):
    return helper.make_node("Gemm", ["x", "w", *(["b"] if bias else [])], ["conv"], "gemm", **attributes)


def given_to(network):
    dims = [dim.dim_value for dim in network.graph.input[0].type.tensor_type.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(network.graph.input[0].type.tensor_type.elem_type)
    return np.random.default_rng(1).standard_normal(dims).astype(dtype)


def assert_folded(network, kind="Gemm"):
    folded = prepare(network)
    onnx.checker.check_model(folded, full_check=True)
    assert kinds(folded) == [kind]
    x = given_to(network)
    (actual,), (wanted,) = run(folded, x), run(network, x)
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert folded.graph.output[0].name == "y"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [(4,), (1, 4), (1,), (), (1, 1), None])
def test_a_gemm_takes_its_batch_norm_in_whatever_its_bias(transposed, bias):
    network = product(
        [gemm(bias is not None, transB=int(transposed), alpha=0.5, beta=3.0), norm(epsilon=1e-3)],
        operands(transposed=transposed, bias=bias or ()),
    )
    assert_folded(network)


def test_a_gemm_whose_other_operand_is_transposed_is_folded_too():
    network = product([gemm(transA=1), norm()], operands() | {"w": np.ones((4, 4), np.float32)})
    network.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3]))
    assert_folded(network)


def test_a_matmul_becomes_a_gemm():
    assert_folded(product([other("MatMul", ["x", "w"], "conv"), norm()], operands()))


def test_a_product_is_folded_in_double_precision():
    folded, modified = fold(product([gemm(beta=3.0, transB=1), norm(epsilon=1e-6)], operands(transposed=True)))
    assert modified
    wide = {name: value.astype(np.float64) for name, value in operands(transposed=True).items()}
    factor = wide["scale"] / np.sqrt(wide["variance"] + np.float64(np.float32(1e-6)))
    _, w, b = folded.graph.node[0].input
    np.testing.assert_array_equal(constants_of(folded)[w], (wide["w"] * factor[:, None]).astype(np.float32))
    shift = wide["shift"] + (3 * wide["b"] - wide["mean"]) * factor
    np.testing.assert_array_equal(constants_of(folded)[b], shift.astype(np.float32))


def test_float16_products_stay_float16():
    folded = prepare(product([gemm(), norm()], operands(dtype=np.float16), dtype=TensorProto.FLOAT16))
    onnx.checker.check_model(folded, full_check=True)
    assert kinds(folded) == ["Gemm"]
    assert {tensor.data_type for tensor in folded.graph.initializer} == {TensorProto.FLOAT16}


def matmul(*inputs):
    return other("MatMul", inputs or ("x", "w"), "conv")


@pytest.mark.parametrize(
    ("nodes", "more"),
    [
        ([gemm(), norm(), other("Relu", ["conv"], "z")], {"outputs": ("y", "z")}),
        ([gemm(), norm()], {"outputs": ("y", "conv")}),
        ([computed("w"), other("Gemm", ["x", "w_computed", "b"], "conv"), norm()], {}),
        ([computed("b"), other("Gemm", ["x", "w", "b_computed"], "conv"), norm()], {}),
        ([computed("mean"), gemm(), other("BatchNormalization", ["conv", "scale", "shift", "mean_computed", "variance"])], {}),
        ([computed("w"), matmul("x", "w_computed"), norm()], {}),
        ([gemm(), norm(training_mode=1)], {}),
        ([matmul(), norm()], {"rank": 3}),  # (2, 4, 4): the channels are the second axis, and the columns the last
    ],
)  # fmt: skip
def test_products_that_are_not_folded_stay_as_they_are(nodes, more):
    network = product(nodes, operands(), **more)
    assert fold(network) == (to_proto(to_ir(network)), False)


def test_a_matmul_of_unknown_rank_stays():
    network = product(
        [other("Reshape", ["x", "dims"], "r"), matmul("r", "w"), norm()], operands() | {"dims": np.array([4, 5])}
    )
    assert kinds(fold(network)[0])[-1] == "BatchNormalization"


def test_a_bias_that_differs_from_row_to_row_stays():
    network = product([gemm(), norm()], operands(bias=(4, 1)))
    assert not fold(network)[1]
    assert not fold(product([gemm(), norm()], operands(bias=(4, 4))))[1]


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_engines_give_the_numbers_of_the_network_as_it_was(engine):
    nodes = [gemm(transB=1), norm(), other("MatMul", ["y", "v"], "m"), other("BatchNormalization", ["m", *NORM], "z")]
    network = product(nodes, operands(transposed=True) | {"v": np.eye(4, dtype=np.float32) + 0.5}, outputs=("z",))
    x = given_to(network)
    with ptp.build(network, engine=engine, progress=False).create_context() as context:
        found = context.run({"x": x})["z"].copy()
    np.testing.assert_allclose(found, run(network, x)[0], rtol=1e-4, atol=1e-4)


def test_engine_cuda_gives_them_too():
    network = product([gemm(transB=1), norm()], operands(transposed=True))
    x = given_to(network)
    found, _ = run_on_host(prepare(network), {"x": x})
    np.testing.assert_allclose(found["y"], run(network, x)[0], rtol=1e-4, atol=1e-4)
