"""Operators of constants that ONNX's reference implementation does not fold are computed while planning."""

import numpy as np
import onnxruntime
import pytest

from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.measures import relative


def kinds(graph, name, float_type=DType.FLOAT32, room=1e-6):
    """Kind and operator of each step, once onnxruntime gives the same numbers."""
    model = graph.model(name)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, graph.inputs)
    found, execution = run_on_host(model, graph.inputs, float_type)
    assert relative(found[name], wanted) < room
    return [(step.kind, step.op) for step in execution.plan.steps]


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
def test_a_table_of_positions_is_resized_once(float_type):
    graph = Graph(x=random(1, 4, 6, 6))
    sizes = graph.constant(np.array([1, 4, 6, 6]))
    table = graph.add("Resize", graph.constant(random(1, 4, 3, 5)), "", "", sizes, mode="cubic", antialias=1)
    room = 1e-6 if float_type is DType.FLOAT32 else 2e-3
    steps = kinds(graph, graph.add("Relu", graph.add("Add", "x", table)), float_type, room)
    assert [kind for kind, _ in steps] == ["pointwise"]


def test_a_constant_image_of_a_convolution_is_laid_out_by_a_generated_kernel():
    graph = Graph(x=random(1, 8, 5, 5))
    image = graph.constant(random(1, 3, 5, 5))
    filters = graph.constant(random(8, 3, 3, 3, seed=3))
    convolution = graph.add("Conv", image, filters, pads=[1, 1, 1, 1])
    steps = kinds(graph, graph.add("Add", convolution, "x"), DType.FLOAT16, 2e-3)
    assert ("pointwise", "Move") in steps
    assert "generic" not in {kind for kind, _ in steps}
