"""Dims and types that a model does not say are inferred on the way, from those before and from constants."""

import numpy as np
import onnx_ir
import pytest

from pytrtplugins.model.ir import to_ir
from pytrtplugins.passes import PropagateConstants
from pytrtplugins.passes.half import convert_to_half
from pytrtplugins.tensor import DType
from tests.passes.test_constants import CONSTANTS, network, propagated


@pytest.mark.parametrize("half", [DType.FLOAT16, DType.BFLOAT16])
def test_dims_are_told_where_constants_keep_another_float_type(half):
    model = network("s = Shape(x) n = Gather(s, zero) m = Unsqueeze(n, axis) t = Concat <axis = 0> (m, rest) r = Reshape(x, t)"
                    " y = MatMul(r, w)", "float[N, P, Q, R] y", **CONSTANTS, w=np.ones((4, 5), np.float32))  # fmt: skip
    halved = convert_to_half(propagated(model), half, lambda node: {1} if node.op_type == "MatMul" else ())
    PropagateConstants({"N": 3})(halved)
    products = next(node for node in halved.graph if node.op_type == "MatMul").outputs[0]
    assert (products.shape, products.dtype.name) == ((3, 8, 6, 5), half.name)


def test_dims_of_codes_of_float16_are_told_where_the_opset_has_none():
    scale, zero = np.float32(0.1), np.int8(0)
    model = network(
        "h = Neg(x) q = QuantizeLinear(h, scale, zero) y = DequantizeLinear(q, scale, zero)",
        "float[P, Q, R, S] y",
        scale=scale,
        zero=zero,
    )
    halved = convert_to_half(
        propagated(model), DType.FLOAT16, lambda node: {1} if node.op_type == "DequantizeLinear" else ()
    )
    codes = next(node for node in halved.graph if node.op_type == "QuantizeLinear")
    assert codes.inputs[0].dtype.name == "FLOAT16"
    codes.outputs[0].shape = None
    PropagateConstants({"N": 3})(halved)
    assert (codes.outputs[0].shape, codes.outputs[0].dtype.name) == ((3, 8, 6, 4), "INT8")


def test_a_result_whose_type_nobody_said_has_that_of_the_first_float():
    model = network("y = MatMul(x, w)", "float[N, 8, 6, 5] y", w=np.ones((4, 5), np.float32))
    ir_model = to_ir(model)
    ir_model.graph.inputs[0].dtype = type(ir_model.graph.inputs[0].dtype).FLOAT16
    product = next(iter(ir_model.graph)).outputs[0]
    product.type = product.shape = None
    PropagateConstants({"N": 3})(ir_model)
    assert (product.dtype.name, product.shape) == ("FLOAT16", (3, 8, 6, 5))


def untold(text, outputs="float[P, Q, R, S] y", **constants):
    """A network in which nothing is said of tensors inside."""
    model = to_ir(network(text, outputs, **constants))
    for node in model.graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.type = value.shape = None
    return model


@pytest.mark.parametrize("known", [(), (0,), (1,), (0, 1)])
def test_dims_of_all_outputs_are_told_where_one_is_known(known):
    model = untold("p, q = Split <axis = 1> (x, parts) y = Concat <axis = 1> (q, p)", parts=np.int64([2, 6]))
    outputs = next(iter(model.graph)).outputs
    for index in known:
        outputs[index].dtype, outputs[index].shape = onnx_ir.DataType.FLOAT, onnx_ir.Shape((3, (2, 6)[index], 6, 4))
    PropagateConstants({"N": 3})(model)
    assert [(value.dtype, value.shape) for value in outputs] == [
        (onnx_ir.DataType.FLOAT, (3, 2, 6, 4)),
        (onnx_ir.DataType.FLOAT, (3, 6, 6, 4)),
    ]


def test_a_tensor_of_unknown_rank_has_a_shape_of_unknown_size():
    model = to_ir(network("r = Relu(x) s = Shape(r) y = Neg(r)", "float[P, Q, R, S] y, int64[K] s"))
    other, shape, _ = model.graph
    other.domain, other.outputs[0].shape, shape.outputs[0].type, shape.outputs[0].shape = "acme", None, None, None
    PropagateConstants()(model)
    assert (shape.outputs[0].dtype, len(shape.outputs[0].shape)) == (onnx_ir.DataType.INT64, 1)


def test_what_cannot_be_inferred_is_left_to_the_engine():
    model = untold("h = Add(x, w) y = Relu(h)", w=np.ones((5, 8, 6, 4), np.float32))
    PropagateConstants({"N": 3})(model)
    assert [node.op_type for node in model.graph] == ["Add", "Relu"]
    assert model.graph[0].outputs[0].shape is None


def test_dims_that_the_model_says_stay_where_inference_knows_less():
    model = untold("r = Reshape(x, s) y = Relu(r)", "float[P, Q, R] y", s=np.int64([0, 8, 24]))
    reshape = model.graph[0]
    reshape.outputs[0].shape = onnx_ir.Shape([3, 8, 24])
    PropagateConstants()(model)
    assert (reshape.outputs[0].dtype, reshape.outputs[0].shape) == (onnx_ir.DataType.FLOAT, (3, 8, 24))


def test_sizes_stand_for_free_dims_of_another_domain_too():
    model = to_ir(network("h = Relu(x) y = Neg(h)"))
    node = model.graph[0]
    node.domain = "acme"
    PropagateConstants({"N": 3})(model)
    assert node.outputs[0].shape == (3, 8, 6, 4)


@pytest.mark.parametrize("known", [False, True])
def test_dims_of_another_domain_are_those_that_the_caller_says(known):
    model = to_ir(network("h = Relu(x) y = Neg(h)"))
    node = model.graph[0]
    node.domain, node.outputs[0].shape = "acme", None
    PropagateConstants(own_dims=lambda each: [(3, 8, 6, 4)] if known and each is node else None)(model)
    assert node.outputs[0].shape == ((3, 8, 6, 4) if known else None)
    assert (model.graph[1].outputs[0].shape == (3, 8, 6, 4)) == known
