"""Two models on one sample: errors by output, or why there are none."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytrtplugins.export import comparison
from pytrtplugins.export.comparison import OutputError, compare_models, random_sample


def scaled(by, dims=("N", 3)):
    """x → x * by → y."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("x", "y")]
    factor = onnx.numpy_helper.from_array(np.float32(by), "k")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "k"], ["y"])], "g", infos[:1], infos[1:], [factor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_errors_are_the_largest_and_the_relative_one():
    found = compare_models(scaled(2), scaled(3), {"x": np.array([[1, -4, 2]], np.float32)}, "mine")
    assert (found.data, found.problem) == ("mine", "")
    assert found.runner.startswith("onnxruntime ")
    assert found.outputs == (OutputError("y", 4.0, pytest.approx(0.5)),)
    (output,) = compare_models(scaled(0), scaled(1), {"x": np.ones((1, 3), np.float32)}, "").outputs
    assert (output.max_abs, output.relative) == (1.0, 0.0)


def test_a_random_sample_has_the_dims_of_the_inputs():
    sample = random_sample(scaled(1)) or {}
    assert sample["x"].shape == (1, 3)
    assert sample["x"].dtype == np.float32
    assert 0 <= sample["x"].min() <= sample["x"].max() < 1
    assert random_sample(scaled(1, None)) is None


def test_what_prevents_a_run_is_said(monkeypatch):
    assert compare_models(scaled(1), scaled(2), None, "").problem == "the dims of its inputs are not known"
    sample = {"x": np.ones((1, 3), np.float32)}
    broken = scaled(2)
    broken.graph.node[0].op_type = "NoSuchOperator"
    found = compare_models(scaled(1), broken, sample, "mine")
    assert (found.runner, found.outputs) == ("", ())
    assert found.problem.startswith("onnxruntime: ")
    monkeypatch.setattr(comparison, "_MAX_BYTES", 10)
    assert compare_models(scaled(1), scaled(2), sample, "").problem == "the model is larger than 2 GiB"


def test_outputs_that_one_model_lacks_are_left_out():
    more = scaled(3)
    more.graph.node.append(helper.make_node("Neg", ["y"], ["z"]))
    more.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ("N", 3)))
    sample = {"x": np.ones((1, 3), np.float32)}
    for model, written in ((scaled(2), more), (more, scaled(2))):
        found = compare_models(model, written, sample, "")
        assert ([output.name for output in found.outputs], found.problem) == (["y"], "")


@pytest.mark.parametrize("room", [0, 1])
@pytest.mark.parametrize("larger", [0, 1])
def test_the_larger_model_counts_up_to_the_limit_itself(monkeypatch, larger, room):
    models = scaled(1), scaled(1)
    models[larger].doc_string = "more"
    monkeypatch.setattr(comparison, "_MAX_BYTES", models[larger].ByteSize() - room)
    problem = compare_models(*models, {"x": np.ones((1, 3), np.float32)}, "").problem
    assert problem == ("the model is larger than 2 GiB" if room else "")
