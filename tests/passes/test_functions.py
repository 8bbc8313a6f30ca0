"""Operators written with those by which ONNX defines them: onnxruntime computes the same, and every name is there once."""

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from pytrtplugins.model.ir import to_ir, to_proto
from pytrtplugins.passes import prepare
from pytrtplugins.passes.functions import definition, splice
from tests.engines.operators import literal

X = np.random.default_rng(0).standard_normal((2, 8, 6, 4)).astype(np.float32)
CONSTANTS = {"low": np.float32(-0.5), "high": np.float32(0.5), "last": np.int64([3]), "scale": np.float32([1, 2, 3, 4])}


def model(text, opset):
    graph = parser.parse_graph(f"net (float[2, 8, 6, 4] x) => (float[A, B, C, D] y) {{ {text} }}")
    read = {name for node in graph.node for name in node.input}
    for number, node in enumerate(graph.node):
        node.name = f"node{number}"
    graph.initializer.extend(numpy_helper.from_array(CONSTANTS[name], name) for name in CONSTANTS if name in read)
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9))


def written_out(made, op_type):
    """The model with every node of this type written with others."""
    found = to_ir(made)
    version = found.opset_imports[""]
    for node in [node for node in found.graph if node.op_type == op_type]:
        inner = definition(node, version)
        assert inner is not None
        splice(found.graph, node, inner, node.inputs)
    assert op_type not in [node.op_type for node in found.graph]
    return to_proto(found)


def run(made):
    return literal(made, {"x": X})[0]


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize(
    ("op_type", "text"),
    [
        ("Clip", "h = Clip(x, low, high) y = Clip(h)"),
        ("Clip", "h = Clip(x, low) y = Clip(h, , high)"),
        ("Elu", "h = Elu(x) y = Elu <alpha = 0.3> (h)"),
        ("HardSwish", "h = HardSwish(x) y = HardSwish(h)"),
        ("LayerNormalization", "h = Neg(x) y = LayerNormalization(h, scale, scale)"),
        ("LayerNormalization", "y = LayerNormalization <axis = 3, epsilon = 0.1> (x, scale, scale)"),
        ("LogSoftmax", "h = LogSoftmax <axis = 1> (x) y = LogSoftmax(h)"),
        ("MeanVarianceNormalization", "h = MeanVarianceNormalization(x) y = MeanVarianceNormalization <axes = [1]> (h)"),
        ("ReduceL1", "h = ReduceL1 <keepdims = 0> (x) y = Mul(x, h)"),
        ("ReduceL2", "h = ReduceL2 <keepdims = 1> (x, last) y = Div(x, h)"),
        ("ReduceL2", "h = ReduceL2 <keepdims = 1, noop_with_empty_axes = 1> (x) y = Add(x, h)"),
        ("ReduceSumSquare", "h = ReduceSumSquare <keepdims = 0> (x, last) s = ReduceSum(h) y = Mul(x, s)"),
        ("Selu", "h = Selu <gamma = 2.0> (x) y = Selu <alpha = 0.5> (h)"),
        ("Shrink", "h = Shrink <lambd = 0.3, bias = 0.1> (x) y = Shrink(h)"),
        ("Softplus", "h = Softplus(x) y = Softplus(h)"),
        ("ThresholdedRelu", "h = ThresholdedRelu(x) y = ThresholdedRelu <alpha = 1.2> (h)"),
    ],
)  # fmt: skip
def test_what_is_written_out_computes_the_same(op_type, text, opset):
    made = model(text, opset)
    found = written_out(made, op_type)
    onnx.checker.check_model(found, full_check=True)
    np.testing.assert_allclose(run(found), run(made), rtol=2e-5, atol=2e-5)
    output = found.graph.output[0]
    assert output == made.graph.output[0]
    names = [node.name for node in found.graph.node]
    assert len(set(names)) == len(names)
    assert all(names)


@pytest.mark.parametrize("op_type", ["LayerNormalization", "LogSoftmax", "Softmax"])
def test_before_opset_18_the_body_is_one_whose_axes_are_attributes(op_type):
    inputs = "x, scale" if op_type == "LayerNormalization" else "x"
    network = model(f"h = {op_type}({inputs}) y = Neg(h)", 17)
    found = written_out(network, op_type)
    onnx.checker.check_model(found, full_check=True)
    np.testing.assert_allclose(run(found), run(network), rtol=2e-5, atol=2e-5)


def test_nodes_inside_are_called_by_the_name_of_what_they_stand_for():
    made = model("h = HardSwish(x) y = Neg(h)", 20)
    made.graph.node[0].name = "swish"
    found = written_out(made, "HardSwish")
    assert [node.name.split(".")[0] for node in found.graph.node[:-1]] == ["swish"] * (len(found.graph.node) - 1)
    made.graph.node[0].name = ""
    assert written_out(made, "HardSwish").graph.node[0].name.split(".")[0] == "h"


def node_of(op_type, version, inputs=("x",), **attributes):
    graph = helper.make_graph(
        [helper.make_node(op_type, [*inputs], ["y"], **attributes)], "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in inputs], [onnx.ValueInfoProto(name="y")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", version)]
    return onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets)).graph[0]


@pytest.mark.parametrize("op_type", ["Conv", "Tanh", "NoSuchOperator"])
def test_what_onnx_does_not_define_by_others_has_no_definition(op_type):
    assert definition(node_of(op_type, 20), 20) is None


@pytest.mark.parametrize(
    ("op_type", "version", "reads"),
    [("MeanVarianceNormalization", 9, 1), ("MeanVarianceNormalization", 13, 1), ("MeanVarianceNormalization", 17, 1),
     ("MeanVarianceNormalization", 18, 2), ("Elu", 13, None), ("Softsign", 14, None)],
)  # fmt: skip
def test_a_definition_is_that_of_the_opset(op_type, version, reads):
    """From opset 18 on, the axes of ReduceMean are an input; CastLike, with which ONNX writes Elu, came with opset 15."""
    graph = definition(node_of(op_type, version), version)
    assert (
        None if graph is None else len(next(node for node in graph if node.op_type == "ReduceMean").inputs)
    ) == reads


def test_the_nodes_of_a_definition_are_valid_in_every_opset_of_the_model():
    checked, refused = set[str](), set[str]()
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    for name in {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}:
        for version in range(7, onnx.defs.onnx_opset_version() + 1):
            if not (
                onnx.defs.has(name, version, "") and (schema := onnx.defs.get_schema(name, version, "")).has_function
            ):
                continue
            inputs = [f"x{index}" for index in range(schema.min_input)]
            found = definition(node_of(name, version, inputs), version)
            (refused if found is None else checked).add(name)
            context.opset_imports = {"": version}
            for node in found or ():
                if not node.attributes.get("then_branch") and not node.attributes.get("body"):
                    onnx.checker.check_node(onnx_ir.to_proto(node), context)
    assert {"MeanVarianceNormalization", "ReduceL2", "Elu", "AffineGrid"} <= checked
    assert "Elu" in refused


def test_a_graph_that_hands_an_input_on_is_put_in_as_well():
    made = model("h = Neg(x) z = Abs(h) y = Relu(z)", 18)
    found = to_ir(made)
    value = onnx_ir.val("given", onnx_ir.DataType.FLOAT)
    inner = onnx_ir.Graph([value], [value], nodes=[])
    splice(found.graph, found.graph[1], inner, found.graph[1].inputs)
    assert [node.op_type for node in found.graph] == ["Neg", "Relu"]
    np.testing.assert_array_equal(run(to_proto(found)), np.maximum(-X, 0))
