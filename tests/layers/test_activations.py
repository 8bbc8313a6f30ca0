"""A head's activations as standard operators: none more than are needed."""

import pytest

from pytrtplugins.layers._activations import decompose_parts
from pytrtplugins.model.op_builder import OpBuilder, Value


@pytest.mark.parametrize(
    ("parts", "operators"),
    [
        ([("logistic", 0, 5)], ["Reshape", "Sigmoid", "Reshape"]),
        ([("softmax", 0, 5)], ["Reshape", "Softmax", "Reshape"]),
        ([("logistic", 0, 2), ("as-is", 2, 5)], ["Reshape", "Split", "Sigmoid", "Concat", "Reshape"]),
    ],
)
def test_pieces_are_joined_where_there_are_several(parts, operators):
    op = OpBuilder("a")
    decompose_parts(op, Value("x", (1, 5, 2, 2)), 5, parts)
    assert [node.op_type for node in op.nodes if node.op_type != "Constant"] == operators
