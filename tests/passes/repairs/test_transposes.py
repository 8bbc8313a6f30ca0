"""Transposes of transposed tensors become one, or none; what others read stays."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytrtplugins.passes import repair
from tests.passes.repairs.exports import exported, repairs_of, run

X = np.random.default_rng(10).normal(size=(2, 3, 4, 5)).astype(np.float32)
TO_LAST, TO_FIRST = "Transpose <perm = [0, 2, 3, 1]>", "Transpose <perm = [0, 3, 1, 2]>"


def network(*perms):
    transposes = " ".join(f"t{number + 1} = {perm} (t{number})" for number, perm in enumerate(perms))
    return exported(f"t0 = Relu (data) {transposes} y = Neg (t{len(perms)})", {}, X.shape, "y", opset=13)


@pytest.mark.parametrize(
    ("perms", "left"),
    [
        ([TO_LAST, TO_FIRST], 0),
        ([TO_LAST, TO_LAST], 1),
        ([TO_LAST, TO_FIRST, TO_LAST], 1),
        ([TO_LAST, TO_LAST, TO_LAST], 0),
        ([TO_LAST], 1),
    ],
)
def test_transposes_in_a_row_become_one_or_none(perms, left):
    model = network(*perms)
    found = repair(model)
    assert sum(node.op_type == "Transpose" for node in found.model.graph.node) == left
    np.testing.assert_array_equal(run(found.model, data=X), run(model, data=X))
    assert set(repairs_of(found)) <= {"doubled-transposes"}


def test_a_tensor_between_them_that_is_an_output_stays():
    model = network(TO_LAST, TO_FIRST)
    model.graph.output.append(helper.make_tensor_value_info("t1", TensorProto.FLOAT, None))
    found = repair(model)
    assert [node.op_type for node in found.model.graph.node] == ["Relu", "Transpose", "Neg"]
    np.testing.assert_array_equal(run(found.model, data=X), run(model, data=X))


def test_between_the_model_s_input_and_output_a_copy_stays():
    found = repair(exported(f"t = {TO_LAST} (data) y = {TO_FIRST} (t)", {}, X.shape, "y", opset=13))
    assert [node.op_type for node in found.model.graph.node] == ["Identity"]
    np.testing.assert_array_equal(run(found.model, data=X), X)
