"""RoiAlign as one kernel, which counts the points of a bin itself, against onnxruntime."""

import numpy as np
import pytest

from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.operators import literal, model_of

BOXES = np.array([[0, 0, 9, 9], [1, 1.3, 15, 12], [3, 3, 3, 3], [-2, -2, 4, 5], [12, 2, 19, 30]], np.float32)
IMAGES = np.array([0, 1, 1, 0, 1])


@pytest.mark.parametrize("ratio", [0, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("place", ["half_pixel", "output_half_pixel"])
def test_bins_are_those_of_onnxruntime(ratio, mode, place):
    at = {"output_height": 2, "output_width": 3, "sampling_ratio": ratio, "mode": mode, "spatial_scale": 0.75}
    inputs = [random(2, 3, 16, 14), BOXES, IMAGES]
    model = model_of("RoiAlign", inputs, {**at, "coordinate_transformation_mode": place}, opset=16)
    found, execution = run_on_host(prepare(model), {"x0": inputs[0]})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    np.testing.assert_allclose(found["y0"], literal(model, {"x0": inputs[0]})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "room"), [(DType.FLOAT32, 1e-4), (DType.FLOAT16, 2e-2)])
def test_images_of_convolutions(kind, room):
    graph = Graph(x=random(2, 16, 16, 14))
    weights = graph.constant(random(16, 16, 1, 1, seed=2) / 4)
    pixels = graph.add("Conv", "x", weights)
    boxes = graph.add(
        "RoiAlign", pixels, graph.constant(BOXES), graph.constant(IMAGES), output_height=3, output_width=3
    )
    kinds = graph.check(graph.add("Conv", boxes, weights), float_type=kind, rtol=room, atol=room)
    assert "generic" not in kinds
