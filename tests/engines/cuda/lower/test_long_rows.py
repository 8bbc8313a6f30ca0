"""Rows too long for one block: two stages of kernels, with onnxruntime's numbers."""

import numpy as np
import onnxruntime
import pytest

from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.measures import relative


def check(graph, name, float_type=DType.FLOAT32, room=1e-5, opset=18):
    """Kinds of the steps, once onnxruntime gives the same numbers."""
    model = graph.model(name, opset=opset)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, graph.inputs)
    found, execution = run_on_host(model, graph.inputs, float_type)
    assert found[name].shape == wanted.shape
    assert relative(found[name], wanted) < room
    return [step.kind for step in execution.plan.steps if step.kind != "reformat"]


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("dims", [(2, 3, 36000), (1, 2, 192, 200), (1, 2, 4, 96, 96)])
def test_a_normalization_of_long_rows_is_three_kernels(dims, float_type):
    graph = Graph(x=random(*dims) + 3)
    name = graph.add("InstanceNormalization", "x", *graph.factors(dims[1]), epsilon=1e-3)
    room = 1e-5 if float_type is DType.FLOAT32 else 2e-3
    assert check(graph, name, float_type, room) == ["pointwise"] * 3


def test_a_normalization_of_layers_has_a_factor_for_each_value():
    graph = Graph(x=random(1, 2704, 100))
    factors = [graph.constant(random(2704, 100, seed=seed)) for seed in (1, 2)]
    name = graph.add("Relu", graph.add("LayerNormalization", "x", *factors, axis=1))
    assert check(graph, name) == ["pointwise"] * 3


def test_the_variance_is_exact_far_from_zero():
    graph = Graph(x=random(1, 1, 40000) + 1000)
    name = graph.add("InstanceNormalization", "x", *graph.factors(1))
    assert check(graph, name, room=1e-4) == ["pointwise"] * 3


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("keep", [0, 1])
def test_a_reduction_of_long_rows_is_two_kernels(op, keep):
    graph = Graph(x=random(1, 1056, 256) + 1)
    axes = graph.constant(np.array([1, 2]))
    name = graph.add(op, "x", axes, keepdims=keep)
    assert check(graph, name) == ["pointwise"] * 2


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_a_pool_of_large_images_is_two_kernels(op):
    graph = Graph(x=random(1, 2, 192, 256))
    assert check(graph, graph.add(op, "x")) == ["pointwise"] * 2


def test_a_length_without_a_divisor_runs_array_by_array():
    graph = Graph(x=random(1, 1, 32771))  # a prime number
    name = graph.add("InstanceNormalization", "x", *graph.factors(1))
    assert check(graph, name) == ["generic"]


def test_rows_of_other_axes_stay():
    graph = Graph(x=random(1 << 16, 3))
    name = graph.add("ReduceSum", "x", graph.constant(np.array([0])))
    assert check(graph, name) == ["generic"]
