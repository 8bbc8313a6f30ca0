"""A model in half precision computes the same within that precision."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import BuildError, PrecisionError
from pytrtplugins.model.ir import to_ir, to_proto
from pytrtplugins.passes import prepare
from pytrtplugins.passes.half import convert_to_half, to_half
from pytrtplugins.plugin.onnx_node import as_node
from pytrtplugins.tensor import DType
from tests.engines.networks import Affine, conv_net, image
from tests.engines.operators import literal as run
from tests.onnx_parts import parsed


@ptp.plugin(namespace="test.half")
class Holding(ptp.Plugin):
    """Has an array."""

    table: np.ndarray

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + self.table[0]


@ptp.plugin(namespace="test.tensorrt")
class FloatOnly(ptp.Plugin):
    """Takes float32 and nothing else."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        assert x.dtype == np.float32
        return x * np.float32(2)

    def supports_format(self, position, descs):
        return descs[position].dtype == DType.FLOAT32


def net(text, dims="1,4,6,6", outputs="float[] y", **constants):
    return prepare(parsed(f"(float[{dims}] x) => ({outputs}) {{ {text} }}", **constants))


def product(*values):
    """x times a constant c."""
    return net("y = Mul (x, c)", c=np.float32(values))


def types_of(model):
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    return {info.name: info.type.tensor_type.elem_type for info in inferred.graph.value_info}


def test_every_tensor_inside_is_half_and_the_numbers_agree():
    model = prepare(conv_net(batch="N"))
    half = to_half(model, DType.FLOAT16)
    onnx.checker.check_model(half, full_check=True)
    assert set(types_of(half).values()) == {TensorProto.FLOAT16}
    (expected,), (found,) = run(model, {"data": image(2)}), run(half, {"data": image(2)})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)


def test_bfloat16_is_written_with_right_types():
    half = to_half(prepare(conv_net()), DType.BFLOAT16)
    half.opset_import[
        0
    ].version = 22  # the first in which convolutions have this type; TensorRT's parser takes it in any
    onnx.checker.check_model(half, full_check=True)
    assert set(types_of(half).values()) == {TensorProto.BFLOAT16}
    weight = next(tensor for tensor in half.graph.initializer if tensor.name.startswith("w1"))
    original = next(tensor for tensor in conv_net().graph.initializer if tensor.name == "w1")
    np.testing.assert_allclose(
        numpy_helper.to_array(weight).astype(np.float32), numpy_helper.to_array(original), rtol=2**-8
    )


def test_sizes_stay_float_and_constants_change():
    text = """[resize] r = Resize <mode = "nearest"> (x, , scales) two = Constant <value_float = 2.0> () m = Mul (r, two)
        shape = Shape (m) ones = ConstantOfShape <value = float[1] one {1}> (shape) sizes = Cast <to = 1> (shape)
        most = ReduceMax <keepdims = 0> (sizes) a = Add (m, ones) y = Mul (a, most) z = Sigmoid (a)"""
    model = net(text, outputs="float[] y, float[] z, float[] a", scales=np.float32([1, 1, 2, 2]))
    half = to_half(model, DType.FLOAT16)
    onnx.checker.check_model(half, full_check=True)
    x = np.random.default_rng(0).random((1, 4, 6, 6), dtype=np.float32)
    for expected, found in zip(run(model, {"x": x}), run(half, {"x": x}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3)


@pytest.mark.parametrize("last", [False, True])
def test_a_plugin_that_takes_only_float32_gets_casts_around_it(last):
    model = conv_net(Affine(3.0), FloatOnly())
    if last:
        model.graph.output[0].name = "p1"
        del model.graph.node[-1]
    model = prepare(model)
    half = to_half(model, DType.FLOAT16)
    with ptp.build(half, engine="reference").create_context() as context:
        found = next(iter(context.run({"data": image()}).values()))
    with ptp.build(model, engine="reference").create_context() as context:
        expected = next(iter(context.run({"data": image()}).values()))
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=2e-2)


def test_tensors_in_attributes_change_their_type_only_where_they_are_floats_and_no_plugins():
    network = net("""shape = Shape (x) sevens = ConstantOfShape <value = int64[1] seven {7}> (shape)
        floats = Cast <to = 1> (sevens) whole = Cast <to = 6> (x) back = Cast <to = 1> (whole)
        product = Mul (back, floats) y = Relu (product)""")
    network.opset_import.add(domain="test.half", version=1)
    network.graph.node[-1].CopyFrom(as_node(Holding(table=np.float32([1, 2])), ["product"], ["y"], "holding"))
    half = to_half(network, DType.FLOAT16)
    found = {node.output[0]: node for node in half.graph.node}
    value = helper.get_node_attr_value(found["sevens"], "value")
    assert (value.data_type, numpy_helper.to_array(value).tolist()) == (TensorProto.INT64, [7])
    assert helper.get_node_attr_value(found["floats"], "to") == TensorProto.FLOAT16
    assert helper.get_node_attr_value(found["whole"], "to") == TensorProto.INT32
    holding = next(node for node in half.graph.node if node.op_type == "Holding")
    assert helper.get_node_attr_value(holding, "table").data_type == TensorProto.FLOAT


def test_a_number_beyond_float16_is_refused_with_the_alternatives():
    with pytest.raises(PrecisionError, match=r"'c' holds 1e\+06, beyond float16.\nDo: precision=\"bf16\""):
        to_half(product(1e6), DType.FLOAT16)
    to_half(product(1e6), DType.BFLOAT16)


def test_subgraphs_are_refused():
    branch = "b () => (float[] n) { n = Neg (x) }"
    graph = net("y = Relu (x)", yes=np.array(True))
    text = f"(bool yes, float[] x) => (float[] z) {{ [choice] z = If (yes) <then_branch = {branch}, else_branch = {branch}> }}"
    graph.graph.node.extend(parsed(text).graph.node)
    with pytest.raises(BuildError, match="'choice': If holds a subgraph"):
        to_half(graph, DType.FLOAT16)


def test_the_models_own_bytes_stay():
    model = prepare(conv_net())
    before = model.SerializeToString()
    to_half(model, DType.FLOAT16)
    assert model.SerializeToString() == before


def branches_around():
    """An If with an If inside: their branches read and give tensors from around them; nodes before and behind it are halved."""

    inner = """[inner] i = If (yes) <then_branch = deep () => (float[] d) { d = Add (h, w) },
        else_branch = shallow () => (float[] e) { e = Identity (h) }>"""
    text = f"""[before] h = Relu (x) [choice] z = If (no) <then_branch = other () => (float[] o) {{ o = Identity (h) }},
        else_branch = then () => (float[] t) {{ n = Neg (w) {inner} t = Mul (i, n) }}> [behind] y = Abs (z)"""
    return net(text, w=np.float32([0.5]), yes=np.array(True), no=np.array(False))


def test_branches_of_a_node_that_stays_in_float32_read_all_around_them_in_float32():
    model = branches_around()
    x = np.float16(np.random.default_rng(0).normal(size=(1, 4, 6, 6))).astype(np.float32)
    (expected,) = run(model, {"x": x})
    found = to_proto(convert_to_half(to_ir(model), DType.FLOAT16, lambda node: (), ["choice"]))
    onnx.checker.check_model(found, full_check=True)
    types = {node.output[0]: node.op_type for node in found.graph.node}
    assert list(types.values()).count("Cast") == 4  # x, h for the branches, z, y
    np.testing.assert_allclose(run(found, {"x": x})[0], expected, rtol=1e-3)


def test_a_branch_may_give_a_tensor_from_around_it():
    model = to_ir(branches_around())
    choice = next(node for node in model.graph if node.op_type == "If")
    relu = next(node for node in model.graph if node.op_type == "Relu")
    choice.attributes["else_branch"].as_graph().outputs[0] = relu.outputs[0]
    halved = convert_to_half(model, DType.FLOAT16, lambda node: (), ["choice"])
    (given,) = choice.attributes["else_branch"].as_graph().outputs
    assert (given.dtype.name, given.producer().op_type, given.producer().inputs[0]) == (
        "FLOAT",
        "Cast",
        relu.outputs[0],
    )
    assert halved is model


def test_an_engines_own_form_takes_what_is_beyond_float16_as_infinite():
    model = to_ir(product(1e6, -1e6, 2, 3, 4, 5))
    found = to_proto(convert_to_half(model, DType.FLOAT16, lambda node: ()))
    (constant,) = found.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(constant), np.float16([np.inf, -np.inf, 2, 3, 4, 5]))


def test_a_type_that_two_values_share_is_changed_for_one_after_the_other():
    model = to_ir(net("t = Neg (x) y = Abs (t)"), checked=True)
    first, last = (node.outputs[0] for node in model.graph)
    first.type = last.type
    halved = to_proto(convert_to_half(model, DType.FLOAT16, lambda node: ()))
    assert [node.op_type for node in halved.graph.node] == ["Cast", "Neg", "Abs", "Cast"]
    assert halved.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT
