"""Operators on constant arrays: what ONNX's reference implementation gives, with its types, or nothing where that has to decide."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from pytrtplugins.model.ir import to_ir
from pytrtplugins.passes import PropagateConstants
from pytrtplugins.passes.constant_operators import COMPUTED, is_small_arithmetic
from tests.engines.operators import ints, model_of

F, I32 = np.array([[1.5, -2, 3e38]], np.float32), np.array([[3], [-4]], np.int32)
BOOLS = np.array([True, False, True])


def floats(*values):
    return np.array(values, np.float32)


CASES = [
    ("Add", [ints(2**62, 1), ints(2**62, 5)], {}),
    ("Add", [F, F], {}),
    ("Sub", [I32, np.int32(7)], {}),
    ("Mul", [np.float64(3), np.float64([1, 2])], {}),
    ("Equal", [ints(1, 2), ints(1, 3)], {}),
    ("Where", [BOOLS, ints(1, 2, 3), ints(-1)], {}),
    ("Cast", [floats(1.7, -1.7, 0)], {"to": 7}),
    ("Cast", [ints(0, 5)], {"to": 9}),
    ("Cast", [I32], {"to": 1}),
    ("Concat", [ints(1), ints(2, 3)], {"axis": 0}),
    ("Concat", [I32, I32], {"axis": -1}),
    ("Concat", [I32], {"axis": 0}),
    ("Gather", [ints(5, 6, 7), np.int64(-1)], {}),
    ("Gather", [F, ints(2, 0)], {"axis": 1}),
    ("Unsqueeze", [ints(5), ints(0, -1)], {}),
    ("Squeeze", [F, ints(0)], {}),
    ("Reshape", [F, ints(3, -1)], {}),
    ("Expand", [floats(7), ints(2, 1)], {}),
    ("Expand", [ints(1, 2, 3), ints(1)], {}),
    ("ConstantOfShape", [ints(2, 3)], {}),
    ("ConstantOfShape", [ints(2)], {"value": helper.make_tensor("v", 7, [1], [9])}),
    ("Transpose", [I32], {}),
    ("Transpose", [F[None]], {"perm": [2, 0, 1]}),
    ("Identity", [I32], {}),
]


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=lambda case: case if isinstance(case, str) else "")
def test_as_the_reference_implementation(op, inputs, attributes):
    model = model_of(op, inputs, attributes, 1, 18)
    names = {info.name for info in model.graph.input}
    feeds = {f"x{index}": np.asarray(array) for index, array in enumerate(inputs) if f"x{index}" in names}
    with np.errstate(all="ignore"):
        (wanted,) = ReferenceEvaluator(model).run(None, feeds)
        found = COMPUTED[op](next(iter(to_ir(model).graph)), *map(np.asarray, inputs))
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Add", [ints(1), np.int32([1])], {}),
        ("Add", [np.float16([1]), np.float16([1])], {}),
        ("Equal", [BOOLS, BOOLS], {}),
        ("Where", [BOOLS, ints(1), np.int32([1])], {}),
        ("Cast", [floats(1)], {"to": 17}),
        ("Concat", [ints(1), np.int32([1])], {"axis": 0}),
        ("Reshape", [F, ints(0, -1)], {}),
        ("Unsqueeze", [F], {}),
        ("ConstantOfShape", [ints(2)], {"value": helper.make_tensor("v", 7, [2], [9, 8])}),
        ("ConstantOfShape", [np.int64(2)], {}),
    ],
)
def test_other_forms_are_left_to_it(op, inputs, attributes):
    node = ir.node(op, [ir.Value(name=f"x{index}") for index in range(len(inputs))], attributes)
    assert COMPUTED[op](node, *inputs) is None


def test_small_arithmetic_is_bounded_by_its_inputs():
    node = ir.node("Add", [ir.Value(name="a"), ir.Value(name="b")])
    assert is_small_arithmetic(node, [np.zeros((64, 1)), np.zeros(64)])
    assert not is_small_arithmetic(node, [np.zeros((65, 1)), np.zeros(64)])
    assert not is_small_arithmetic(node, [np.zeros(1), None])
    assert not is_small_arithmetic(ir.node("Expand", [ir.Value(name="a")]), [np.zeros(1), ints(4)])


def test_without_folding_nodes_stay_and_their_values_are_known():
    """Of a Reshape to computed dims the dims are found, and no node goes."""
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Shape", ["x"], ["shape"], start=1),
                helper.make_node("Concat", ["first", "shape"], ["dims"], axis=0),
                helper.make_node("Reshape", ["x", "dims"], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info("x", 1, ["N", 4])],
            [helper.make_tensor_value_info("y", 1, None)],
            [helper.make_tensor("first", 7, [1], [-1])],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    graph = to_ir(model)
    PropagateConstants(folds=False)(graph)
    assert [node.op_type for node in graph.graph] == ["Shape", "Concat", "Reshape"]
    assert list(graph.graph.outputs[0].shape or ())[1:] == [4]
    np.testing.assert_array_equal(graph.graph.node(1).outputs[0].const_value.numpy(), [-1, 4])
