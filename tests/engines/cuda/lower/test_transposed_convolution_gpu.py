"""Transposed convolutions and Resize on a GPU: the numbers in each precision, and no step beside the engine's own kernels."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.cuda.plan.fallbacks import fallbacks
from pytrtplugins.passes import prepare
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.lower.test_transposed_convolution import Unet, in_codes, outputs
from tests.measures import relative

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

BOUNDS = {"fp32": 1e-5, "tf32": 3e-3, "fp16": 4e-3, "int8": 2e-2}
WINDOWS = {
    "a block for each pixel": ((16, 16, 2, 2), {"strides": [2, 2]}),
    "windows overlap": ((16, 16, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
    "one row more": ((16, 16, 3, 3), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
    "groups": ((16, 1, 4, 4), {"strides": [2, 2], "pads": [1] * 4, "group": 16}),
}


def assert_right(model, inputs, precision, settings=None):
    (wanted,) = outputs(model, inputs)
    engine = ptp.build(model, engine="cuda", precision=precision, settings={"disable": ["tactics"], **(settings or {})})
    with engine.create_context() as context:
        for _ in range(3):  # the first is captured
            (found,) = context.run(inputs).values()
            assert relative(np.asarray(found), wanted) < BOUNDS[precision]
        assert fallbacks(next(iter(context._ready.values())).execution.plan) == {}


@pytest.mark.parametrize("disable", [["tactics"], ["tactics", "handwritten-kernels"]], ids=["handwritten", "libraries"])
@pytest.mark.parametrize("precision", list(BOUNDS))
def test_a_level_of_a_unet(precision, disable):
    inputs = {"data": random(2, 3, 8, 8)}
    model = in_codes(prepare(Unet().model("joined")), inputs, precision)
    assert_right(model, inputs, precision, {"disable": disable, "batch": 2})


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_windows(window, precision):
    (channels, filters, *kernel), attributes = window
    graph = Graph(x=random(2, channels, 6, 7))
    weights = graph.constant(random(channels, filters, *kernel, seed=1) / 8)
    assert_right(graph.model(graph.add("ConvTranspose", "x", weights, **attributes)), graph.inputs, precision)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_images_are_resized(mode, precision):
    graph = Graph(x=random(1, 8, 7, 6))
    first = graph.add("Conv", "x", graph.constant(random(21, 8, 1, 1) / 3))
    sizes = graph.constant(np.array([1, 21, 28, 30]))
    assert_right(graph.model(graph.add("Resize", first, "", "", sizes, mode=mode)), graph.inputs, precision)
