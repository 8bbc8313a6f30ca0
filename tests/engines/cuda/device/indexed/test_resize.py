"""Cubic and antialiased Resize as one kernel, against onnxruntime."""

import numpy as np
import pytest

from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.operators import f, literal, model_of


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "cubic"},
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners", "cubic_coeff_a": -0.5},
        {"mode": "cubic", "exclude_outside": 1},
        {"mode": "cubic", "antialias": 1},
        {"mode": "linear", "antialias": 1},
    ],
)
@pytest.mark.parametrize("scales", [[1, 1, 1.5, 2], [1, 1, 0.5, 0.6]])
def test_weighted_sums_of_pixels(attributes, scales):
    x = f(1, 3, 8, 10)
    model = model_of("Resize", [x, None, np.array(scales, np.float32)], attributes, opset=18)
    found, execution = run_on_host(prepare(model), {"x0": x})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    np.testing.assert_allclose(found["y0"], literal(model, {"x0": x})[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "room"), [(DType.FLOAT32, 1e-4), (DType.FLOAT16, 2e-2)])
def test_images_between_convolutions(kind, room):
    graph = Graph(x=random(1, 13, 6, 7))
    weights = graph.constant(random(13, 13, 1, 1, seed=2) / 4)
    scales = graph.constant(np.array([1, 1, 2, 2], np.float32))
    pixels = graph.add("Resize", graph.add("Conv", "x", weights), "", scales, mode="cubic")
    assert "generic" not in graph.check(graph.add("Conv", pixels, weights), float_type=kind, rtol=room, atol=room)
