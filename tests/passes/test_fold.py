import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from pytrtplugins.passes import FoldBatchNorm, prepare, to_ir, to_proto
from tests.engines.operators import literal

NORM = ("scale", "shift", "mean", "variance")


def arrays(filters=4, channels=3, kernel=3, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    values = {
        "w": rng.standard_normal((filters, channels, kernel, kernel)),
        "b": rng.standard_normal(filters),
        "scale": rng.uniform(0.5, 2, filters),
        "shift": rng.standard_normal(filters),
        "mean": rng.standard_normal(filters),
        "variance": rng.uniform(0.1, 2, filters),
    }
    return {name: value.astype(dtype) for name, value in values.items()}


def conv(bias=True, **attributes):
    return helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["conv"], "conv", **attributes)


def norm(**attributes):
    return helper.make_node("BatchNormalization", ["conv", *NORM], ["y"], "norm", **attributes)


def model(nodes, constants, outputs=("y",), channels=3, dtype=TensorProto.FLOAT):
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", dtype, [1, channels, 8, 8])],
        [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def run(network, x):
    return literal(network, {"x": x})


def kinds(network):
    return [node.op_type for node in network.graph.node]


def fold(network):
    ir_model = to_ir(network)
    result = FoldBatchNorm()(ir_model)
    return to_proto(ir_model), result.modified


@given(
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.sampled_from([1, 3]),
    st.sampled_from([1e-5, 1e-6, 0.1]),
    st.sampled_from([1, 3]),
)
def test_a_folded_network_gives_the_same_numbers(seed, bias, kernel, epsilon, group):
    filters = 6
    constants = arrays(filters, 3 // group, kernel, seed)
    if not bias:
        del constants["b"]
    network = model([conv(bias, group=group), norm(epsilon=epsilon)], constants)
    folded = prepare(network)
    x = np.random.default_rng(seed).standard_normal((1, 3, 8, 8)).astype(np.float32)
    assert kinds(folded) == ["Conv"]
    (actual,), (wanted,) = run(folded, x), run(network, x)
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_folding_is_done_in_double_precision():
    constants = arrays()
    folded, _ = fold(model([conv(), norm(epsilon=1e-6)], constants))
    wide = {name: value.astype(np.float64) for name, value in constants.items()}
    factor = wide["scale"] / np.sqrt(wide["variance"] + np.float64(np.float32(1e-6)))
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in folded.graph.initializer}
    _, w, b = folded.graph.node[0].input
    np.testing.assert_array_equal(found[w], (wide["w"] * factor.reshape(-1, 1, 1, 1)).astype(np.float32))
    np.testing.assert_array_equal(found[b], (wide["shift"] + (wide["b"] - wide["mean"]) * factor).astype(np.float32))


def test_the_result_keeps_the_batch_norms_name_and_nothing_unused_stays():
    network = model([conv(), norm(), helper.make_node("Relu", ["y"], ["z"], "relu")], arrays(), outputs=("z",))
    folded = prepare(network)
    assert [(node.op_type, *node.output) for node in folded.graph.node] == [("Conv", "y"), ("Relu", "z")]
    assert {tensor.name for tensor in folded.graph.initializer} == set(folded.graph.node[0].input[1:])


def test_the_given_model_does_not_change():
    network = model([conv(), norm()], arrays())
    before = network.SerializeToString(deterministic=True)
    assert prepare(network).SerializeToString(deterministic=True) == prepare(network).SerializeToString(
        deterministic=True
    )
    assert network.SerializeToString(deterministic=True) == before


def test_weights_that_two_convolutions_share_are_folded_for_each():
    nodes = [
        conv(), norm(), helper.make_node("Conv", ["x", "w", "b"], ["other"], "other"),
        helper.make_node("BatchNormalization", ["other", *NORM], ["z"], "norm2", epsilon=0.5),
    ]  # fmt: skip
    network = model(nodes, arrays(), ("y", "z"))
    x = np.random.default_rng(3).standard_normal((1, 3, 8, 8)).astype(np.float32)
    folded = prepare(network)
    assert kinds(folded) == ["Conv", "Conv"]
    for actual, wanted in zip(run(folded, x), run(network, x), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)


def test_constants_may_come_from_constant_nodes():
    constants = [
        helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(value, name))
        for name, value in arrays().items()
    ]
    network = model([*constants, conv(), norm()], {})
    x = np.random.default_rng(4).standard_normal((1, 3, 8, 8)).astype(np.float32)
    folded = prepare(network)
    assert kinds(folded) == ["Conv"]
    np.testing.assert_allclose(run(folded, x)[0], run(network, x)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["w", "b", "mean", "variance"])
def test_an_operand_that_is_given_at_run_time_keeps_its_batch_norm(name):
    constants = arrays()
    network = model([conv(), norm()], constants)
    dims = constants.pop(name).shape
    network = model([conv(), norm()], constants)
    network.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
    folded, modified = fold(network)
    assert not modified
    assert kinds(folded) == ["Conv", "BatchNormalization"]


def test_the_result_has_the_batch_norms_type_and_dims():
    network = onnx.shape_inference.infer_shapes(
        model([conv(), norm(), helper.make_node("Relu", ["y"], ["z"])], arrays(), ("z",))
    )
    network.graph.value_info[0].CopyFrom(helper.make_tensor_value_info("conv", TensorProto.FLOAT, ["N", 4, "h", "w"]))
    infos = {info.name: info for info in fold(network)[0].graph.value_info}
    assert "conv" not in infos
    assert infos["y"] == helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])


def test_float16_weights_stay_float16():
    network = model([conv(), norm()], arrays(dtype=np.float16), dtype=TensorProto.FLOAT16)
    folded = prepare(network)
    onnx.checker.check_model(folded, full_check=True)
    assert {tensor.data_type for tensor in folded.graph.initializer} == {TensorProto.FLOAT16}


@pytest.mark.parametrize(
    ("name", "value"),
    [("variance", -3.0), ("variance", np.inf), ("scale", np.nan), ("mean", 3e38), ("w", np.inf)],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_numbers_that_are_not_finite_stay_so_without_a_warning(name, value, dtype):
    values = arrays()
    values[name][1:2] = value
    with np.errstate(over="ignore"):
        values = {key: array.astype(dtype) for key, array in values.items()}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    network = model([conv(), norm()], values, dtype=kind)
    folded = prepare(network)
    assert kinds(folded) == ["Conv"]
    x = np.random.default_rng(5).standard_normal((1, 3, 8, 8)).astype(dtype)
    actual, wanted = run(folded, x)[0], run(network, x)[0]
    np.testing.assert_array_equal(np.isfinite(actual[:, [0, 2, 3]]), np.isfinite(wanted[:, [0, 2, 3]]))
    assert not np.isfinite(actual[:, 1]).all() or (name == "variance" and value == np.inf)


def constants_of(network):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in network.graph.initializer}


@pytest.mark.parametrize("bias", ["b", "", None])
def test_the_bias_may_be_missing_and_the_new_constants_are_named_after_the_old_ones(bias):
    constants = {name: value.astype(np.float64) for name, value in arrays().items()}
    first = helper.make_node("Conv", ["x", "w", *([] if bias is None else [bias])], ["conv"], "conv")
    folded = prepare(model([first, norm()], arrays()))
    factor = constants["scale"] / np.sqrt(constants["variance"] + np.float64(np.float32(1e-5)))
    offset = (constants["b"] if bias else 0) - constants["mean"]
    assert list(folded.graph.node[0].input) == ["x", "w_folded", "b_folded" if bias else "shift_folded"]
    np.testing.assert_allclose(
        list(constants_of(folded).values())[1], constants["shift"] + offset * factor, rtol=1e-6, atol=1e-7
    )


def test_names_that_are_taken_are_avoided():
    constants = arrays() | {"w_folded": np.float32(2), "w_folded_2": np.float32(3)}
    scaled = [helper.make_node("Mul", ["y", "w_folded"], ["m"]), helper.make_node("Mul", ["m", "w_folded_2"], ["z"])]
    network = model([conv(), norm(), *scaled], constants, ("z",))
    folded = prepare(network)
    assert list(folded.graph.node[0].input) == ["x", "w_folded_3", "b_folded"]
    x = np.random.default_rng(6).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(run(folded, x)[0], run(network, x)[0], rtol=1e-4, atol=1e-4)


def test_names_of_what_nodes_compute_are_avoided_too():
    between = helper.make_node("Relu", ["y"], ["w_folded"])
    network = model([conv(), norm(), between], arrays(), ("w_folded",))
    folded = prepare(network)
    assert list(folded.graph.node[0].input) == ["x", "w_folded_2", "b_folded"]
    x = np.random.default_rng(6).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(run(folded, x)[0], run(network, x)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("group", [1, 3])
def test_a_transposed_convolution_is_folded_too(group, bias):
    constants = arrays(6)
    constants["w"] = np.random.default_rng(group).standard_normal((3, 6 // group, 3, 2)).astype(np.float32)
    operands = ["x", "w", "b"] if bias else ["x", "w"]
    network = model([other("ConvTranspose", operands, "conv", group=group, strides=[2, 1]), norm()], constants)
    folded = prepare(network)
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    assert kinds(folded) == ["ConvTranspose"]
    (actual,), (wanted,) = run(folded, x), run(network, x)
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


def other(op, inputs, output="y", domain="", **attributes):
    return helper.make_node(op, inputs, [output], op, domain=domain, **attributes)


def computed(name):
    """A copy of a constant under its name, which is known at run time alone."""
    return helper.make_node("Neg", [name], [f"{name}_computed"], f"negate_{name}")


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([conv(), other("BatchNormalization", ["conv", *NORM], domain="elsewhere")], "y"),
        ([other("Conv", ["x", "w", "b"], "conv", domain="elsewhere"), norm()], "y"),
        ([other("ConvTranspose", ["x", "w", "b"], "conv", domain="elsewhere"), norm()], "y"),
        ([other("BatchNormalization", ["x", *NORM])], "y"),
        ([computed("w"), other("Conv", ["x", "w_computed", "b"], "conv"), norm()], "y"),
        ([computed("b"), other("Conv", ["x", "w", "b_computed"], "conv"), norm()], "y"),
        *(
            ([computed(name), conv(), other("BatchNormalization", ["conv", *(f"{n}_computed" if n == name else n for n in NORM)])], "y")
            for name in NORM
        ),
        ([other("Add", ["scale", "scale"], "twice"), conv(), other("BatchNormalization", ["conv", "twice", *NORM[1:]])], "y"),
        ([conv(), norm(training_mode=1)], "y"),
        ([conv(), helper.make_node("BatchNormalization", ["conv", *NORM], ["y", "m", "v"], "norm")], "y"),
        ([conv(), norm(), other("Add", ["conv", "conv"], "z")], "y"),
        ([conv(), norm(), other("Relu", ["conv"], "z")], "yz"),
        ([conv(), norm()], ("y", "conv")),
        ([other("LSTM", ["x", "w", "w"], "conv", hidden_size=1), norm()], "y"),
    ],
)  # fmt: skip
def test_everything_else_stays_as_it_is(nodes, outputs):
    network = model(nodes, arrays(), outputs)
    assert fold(network) == (to_proto(to_ir(network)), False)


def test_one_that_is_folded_counts_whatever_comes_behind_it():
    nodes = [
        conv(), norm(), helper.make_node("Conv", ["x", "w", "b"], ["other"], "other"),
        helper.make_node("BatchNormalization", ["other", *NORM], ["z"], "late", training_mode=0),
    ]  # fmt: skip
    folded, modified = fold(model(nodes, arrays(), ("y", "z", "other")))
    assert modified
    assert kinds(folded) == ["Conv", "Conv", "BatchNormalization"]
