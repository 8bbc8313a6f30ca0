"""GridSample as one kernel, on all layouts, against onnxruntime."""

import itertools

import numpy as np
import pytest

from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.plan.test_moves import Movements
from tests.engines.operators import literal, model_of

MODES = list(itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)))


def grid(*dims, seed=1):
    """Coordinates, some of them far outside."""
    return np.random.default_rng(seed).uniform(-1.6, 1.6, dims).astype(np.float32)


@pytest.mark.parametrize(("mode", "padding", "corners"), MODES)
def test_pixels_are_read_as_onnxruntime_reads_them(mode, padding, corners):
    inputs = [random(2, 3, 5, 6), grid(2, 4, 7, 2)]
    model = model_of("GridSample", inputs, {"mode": mode, "padding_mode": padding, "align_corners": corners}, opset=20)
    found, execution = run_on_host(prepare(model), {"x0": inputs[0]})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    np.testing.assert_allclose(found["y0"], literal(model, {"x0": inputs[0]})[0], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("mode", "padding", "corners"), [each for each in MODES if each[0] != "cubic"][::3])
def test_volumes(mode, padding, corners):
    graph = Graph(x=random(2, 3, 4, 5, 6), grid=grid(2, 3, 4, 2, 3))
    last = graph.add("GridSample", "x", "grid", mode=mode, padding_mode=padding, align_corners=corners)
    assert graph.check(last, rtol=1e-5, atol=2e-6) == ["indexed"]


@pytest.mark.parametrize("channels", [16, 5, 1])
@pytest.mark.parametrize(("kind", "room"), [(DType.FLOAT32, 1e-4), (DType.FLOAT16, 2e-2)])
def test_images_between_convolutions_are_read_and_written_as_they_lie(channels, kind, room):
    graph = Graph(x=random(2, channels, 5, 6), grid=grid(2, 4, 7, 2) / 2)
    weights = graph.constant(random(channels, channels, 1, 1, seed=2))
    pixels = graph.add("GridSample", graph.add("Conv", "x", weights), "grid", align_corners=1)
    kinds = graph.check(graph.add("Conv", pixels, weights), float_type=kind, rtol=room, atol=4 * room)
    assert kinds.count("indexed") == 1
    assert "generic" not in kinds


def test_moved_images_and_coordinates_are_read_in_place():
    """As deformable attention writes it."""
    graph = Movements(x=random(2, 20, 3, 4), grid=grid(2, 7, 3, 4, 2))
    values = graph.reshape(graph.turn(graph.reshape("x", 2, 20, 12), 0, 2, 1), 6, 4, 4, 5)
    places = graph.reshape(graph.turn("grid", 0, 2, 1, 3, 4), 6, 7, 4, 2)
    assert graph.check(graph.add("GridSample", values, places), rtol=1e-5, atol=2e-6) == ["indexed"]


def test_doubles_are_computed_as_such():
    x, places = random(1, 2, 4, 4).astype(np.float64), grid(1, 3, 3, 2).astype(np.float64)
    model = model_of("GridSample", [x, places], {"padding_mode": "border"}, opset=20)
    found, execution = run_on_host(prepare(model), {"x0": x})
    alone, _ = run_on_host(prepare(model), {"x0": x}, disable=("pointwise",))
    assert [step.kind for step in execution.plan.steps] == ["indexed"]
    np.testing.assert_allclose(found["y0"], alone["y0"], rtol=1e-14, atol=1e-14)


def test_a_coordinate_that_is_no_number_makes_none():
    places = np.array([[[[np.nan, 0], [0.25, 0.5]]]], np.float32)
    model = model_of("GridSample", [random(1, 2, 4, 4), places], {}, opset=20)
    found = run_on_host(prepare(model), {"x0": random(1, 2, 4, 4)})[0]["y0"]
    assert np.isnan(found[..., 0]).all()
    assert np.isfinite(found[..., 1]).all()
