"""Plugins put before, and behind, the models with which ONNX tests each of its operators: nothing else changes."""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest

import pytrtplugins as ptp
from pytrtplugins.model.decompose import inline_plugins


@ptp.plugin(namespace="tests.graph")
class Same(ptp.Plugin):
    """What comes in, of any dims."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x

    def decompose(self, op, x):
        return op.Identity(x)


CRASHING = "tree_ensemble_set_membership"  # onnx 1.23's shape inference ends the process at an input without a type


def cases():
    """Models of one operator each, with values for the first set of inputs; models of tensors alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in onnx's own examples
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    return [case for case in found if CRASHING not in case.name and _tensors_only(case.model.graph)]


def _tensors_only(graph):
    return all(info.type.HasField("tensor_type") for info in (*graph.input, *graph.output))


def run(model, inputs):
    """What onnxruntime computes; None where it does not have the operator."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, inputs)
    except Exception:  # not implemented, or not for this type: of many kinds
        return None


def check(case):
    """Put plugins around a model; whether onnxruntime could run it before."""
    graph = ptp.load_onnx(case.model)
    tensors = [info for info in (*case.model.graph.input, *case.model.graph.output) if info.name]
    floats = [info.name for info in tensors if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    for name in floats:
        graph.insert_after(name, Same())
    onnx.checker.check_model(graph.model, full_check=True)
    if not case.data_sets:
        return False
    names = [info.name for info in case.model.graph.input]
    inputs = {name: np.asarray(value) for name, value in zip(names, case.data_sets[0][0], strict=False) if name}
    before = run(case.model, inputs)
    if before is None or "dropout" in case.name or "bernoulli" in case.name or "random" in case.name:
        return False
    after = run(inline_plugins(graph.model), inputs)
    assert after is not None, case.name
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=case.name)
    return True


@pytest.mark.slow
def test_plugins_around_an_operator_change_nothing():
    chosen = cases()
    ran = sum(check(case) for case in chosen)
    assert ran > len(chosen) // 2, f"only {ran} of {len(chosen)} ran"
