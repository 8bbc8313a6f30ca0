"""Inputs that nobody should have to give: labels of the training, and weights."""

import numpy as np
from onnx import TensorProto, helper

from pytrtplugins.passes import repair
from tests.passes.repairs.exports import exported, refused, repairs_of, run

X = np.float32([[1, 2], [3, 5]])


def network(label="softmax_label", **options):
    """SoftmaxOutput as MXNet's exporter writes it: Softmax, with the label among the inputs."""
    nodes = "fc = Gemm <transB = 1> (data, w, b) softmax = Softmax <axis = 1> (fc)"
    weights = {"w": np.eye(2, dtype=np.float32), "b": np.zeros(2, np.float32)}
    labels = [helper.make_tensor_value_info(label, TensorProto.FLOAT, [2])]
    return exported(nodes, weights, [2, 2], "softmax", inputs=labels, **options)


def test_a_label_that_nothing_reads_is_no_input():
    assert refused(network(), data=X)
    found = repair(network())
    assert repairs_of(found) == {"label-inputs": 1}
    np.testing.assert_allclose(run(found.model, data=X), np.exp(X) / np.exp(X).sum(1, keepdims=True), rtol=1e-6)


def test_other_inputs_that_nothing_reads_stay():
    assert repair(network("mask")).findings == ()


def test_weights_of_ir_3_are_no_inputs():
    found = repair(network(weight_inputs=True))
    assert repairs_of(found) == {"weight-inputs": 2, "label-inputs": 1}
    assert [info.name for info in found.model.graph.input] == ["data"]
    assert found.model.ir_version == 4
    kept = repair(network(weight_inputs=True), skip=["weight-inputs"]).model
    assert {info.name for info in kept.graph.input} == {"data", "w", "b"}
    np.testing.assert_array_equal(run(found.model, data=X), run(kept, data=X))
