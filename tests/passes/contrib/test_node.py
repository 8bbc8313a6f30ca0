"""What a function body's author asks of a node: dims that are known are as they must be, others are let pass."""

import pytest
from onnx import TensorProto, helper

from pytrtplugins.passes.contrib.node import ContribNode, MalformedError


def node(dims):
    """A node with one input of these dims."""
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, dims)
    return ContribNode(helper.make_node("Some", ["x"], ["y"], domain="com.microsoft"), {"x": kind})


@pytest.mark.parametrize(
    ("dims", "length", "problem"),
    [
        ([4], 4, ""),
        (["n"], 4, ""),
        ([5], 0, ""),
        (None, 4, ""),
        ([5], 4, "has 5 elements in its input 0 instead of the 4"),
        ([4, 4], 4, "has 2 dims in its input 0 instead of the 1"),
        ([], 4, "has 0 dims in its input 0 instead of the 1"),
    ],
)
def test_an_input_of_one_axis_has_the_length_that_is_known(dims, length, problem):
    if problem:
        with pytest.raises(MalformedError, match=f"^{problem}$"):
            node(dims).check_length(0, length)
    else:
        node(dims).check_length(0, length)
