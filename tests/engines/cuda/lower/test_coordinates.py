"""Coordinates in a network of float16: what makes them stays float32, the layers around do not."""

import numpy as np

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.tensor import DType
from tests.engines.cuda.lower.test_pointwise import random
from tests.engines.cuda.plan.test_moves import Movements


def network():
    """Offsets from a convolution are added to places in an image, as deformable attention and optical flow do it."""
    graph = Movements(x=random(1, 8, 6, 7), places=random(1, 6, 7, 2, seed=1))
    offsets = graph.add("Conv", "x", graph.constant(random(2, 8, 1, 1, seed=2) / 9), name="offsets")
    moved = graph.add("Add", "places", graph.turn(offsets, 0, 2, 3, 1))
    grid = graph.add(
        "Sub", graph.add("Mul", moved, graph.constant(np.float32(0.5))), graph.constant(np.float32(0.1)), name="grid"
    )
    pixels = graph.add("Conv", "x", graph.constant(random(8, 8, 1, 1, seed=3) / 3), name="pixels")
    return graph, graph.add("GridSample", pixels, grid, name="sampled")


def test_coordinates_stay_float32():
    graph, last = network()
    lowered = lower(graph.model(last), float_type=DType.FLOAT16)
    kinds = {value.name.split("_")[0]: value.dtype.name for node in lowered.graph for value in node.outputs}
    assert kinds["grid"] == "FLOAT"
    sampled = next(node for node in lowered.graph if node.op_type == "GridSample")
    assert [value.dtype.name for value in sampled.inputs] == ["FLOAT16", "FLOAT"]


def test_kernels_convert_without_steps_of_their_own():
    graph, last = network()
    kinds = graph.check(last, float_type=DType.FLOAT16, rtol=0.02, atol=0.02)
    assert "generic" not in kinds
    assert kinds.count("indexed") == 1
