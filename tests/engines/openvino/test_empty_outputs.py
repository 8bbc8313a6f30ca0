"""A run of OpenVINO that fails without an error: outputs of a size that an input does not have."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.errors import ExecutionError


class Answering:
    """A request of OpenVINO that gives what it is told."""

    def __init__(self, *values):
        self.values = values

    def infer(self, given, share_inputs):
        return self.values


def build(*nodes, outputs=("y",), dims=("N", 3)):
    data = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]
    graph = helper.make_graph(nodes, "net", data, [helper.make_empty_tensor_value_info(name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return ptp.build(model, engine="cpu")


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_an_output_without_values_is_an_error_that_names_it(shape):
    with build(helper.make_node("Relu", ["x"], ["y"], "relu")).create_context() as context:
        context._request = Answering(np.zeros(shape, np.float32))
        with pytest.raises(
            ExecutionError, match=r"output 'y' has dims .* and no values; expected \(2, 3\)[^$]*onnxruntime"
        ):
            context.run({"x": np.ones((2, 3), np.float32)})


def test_sizes_of_inputs_and_counts_may_be_0():
    nodes = helper.make_node("Relu", ["x"], ["y"], "relu"), helper.make_node("NonZero", ["x"], ["z"], "found")
    with build(*nodes, outputs=("y", "z"), dims=(2, "K")).create_context() as context:
        for size in (3, 0):
            found = context.run({"x": np.zeros((2, size), np.float32)})
            assert (found["y"].shape, found["z"].shape) == ((2, size), (2, 0))
