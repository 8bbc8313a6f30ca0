"""Operators at computed positions on a GPU: in one graph, the numbers of onnxruntime."""

import itertools
from functools import partial

import numpy as np
import pytest
from onnx import helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.engines.cuda.plan.fallbacks import ARRAYS, UNCAPTURED
from tests.engines.cuda.device.indexed.test_grid_sample import grid
from tests.engines.cuda.device.indexed.test_roi_align import BOXES, IMAGES
from tests.engines.cuda.lower.test_pointwise import random
from tests.engines.operators import f, ints, literal, model_of
from tests.randomness import generator

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
RNG = generator(2)


def indices(size, *dims):
    return RNG.integers(-size, size, dims)


later = partial(partial, random)  # draws once a test wants it: machines without a GPU collect these tests too
CASES = [
    *(("GridSample", [later(2, 3, 9, 10), grid(2, 8, 7, 2)], {"mode": mode, "padding_mode": padding, "align_corners": 1}, 1)
      for mode, padding in itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"))),
    ("GridSample", [later(2, 3, 4, 5, 6), grid(2, 8, 7, 4, 3)], {}, 1),
    ("Gather", [later(50, 64), indices(50, 300)], {}, 1),
    ("GatherElements", [later(1, 840, 256), indices(840, 1, 300, 256)], {"axis": 1}, 1),
    ("GatherND", [later(4, 50, 8), indices(4, 90, 2)], {}, 1),
    *(("ReverseSequence", [later(*dims), RNG.integers(0, dims[time] + 1, dims[1 - time])], {"time_axis": time, "batch_axis": 1 - time}, 1)
      for time in (0, 1) for dims in ((70, 30, 64), (30, 70, 5), (9, 11))),
    *((op, [later(40, 64), index, later(*updates, seed=1)], {"reduction": reduction}, 1)
      for reduction in ("none", "add", "mul", "max", "min")
      for op, index, updates in (("ScatterElements", indices(40, 90, 50), (90, 50)), ("ScatterND", indices(40, 70, 1), (70, 64)))),
    *(("ScatterElements", [later(*data), indices(data[axis], *dims), later(*dims, seed=1)], {"reduction": reduction, "axis": axis}, 1)
      for reduction in ("none", "add")
      for data, dims, axis in (((8, 1000), (8, 100), 1), ((840, 256), (300, 256), 0), ((64, 50, 30), (64, 50, 7), 2),
                               ((4, 5000), (4, 1300), 1), ((4, 5000), (4, 3000), 1), ((64, 9, 300), (64, 20, 300), 1))),
    *(("ScatterND", [later(500, 33, 16), indices(9, count, 2), later(count, 16, seed=1)], {"reduction": reduction}, 1)
      for reduction in ("none", "add") for count in (1, 1300, 2000)),
    *(("TopK", [lambda length=length: np.round(random(2, length), 2), ints(k)], {"largest": largest}, 2)
      for length, k, largest in ((8400, 300, 1), (8400, 300, 0), (100, 100, 1), (50000, 4000, 1), (9000, 9000, 1), (100000, 10, 1))),
    ("TopK", [RNG.integers(0, 5, (2, 70000)), ints(2000)], {}, 2),
    ("TopK", [later(3, 70, 5, kind=np.float64), ints(9)], {"axis": 1}, 2),
    *(("RoiAlign", [later(2, 16, 30, 30), BOXES, IMAGES],
       {"output_height": 7, "output_width": 7, "mode": mode, "sampling_ratio": ratio}, 1)
      for mode in ("avg", "max") for ratio in (0, 2)),
    *(("CumSum", [later(*dims), ints(1)[0]], {"exclusive": 1, "reverse": 1}, 1) for dims in ((2, 9000), (3, 4, 12000), (2, 5))),
    *(("Resize", [later(1, 5, 20, 30), None, np.array([1, 1, scale, scale], np.float32)], {"mode": "cubic", "antialias": 1}, 1)
      for scale in (2, 0.4)),
    *((op, [later(*dims, kind=kind)], {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}, 1)
      for op, kind in (("MaxPool", np.float32), ("MaxPool", np.float16), ("AveragePool", np.float32))
      for dims, kernel, strides, pads, dilations in (
          ((2, 64, 1000), [3], [2], [1, 0], [1]), ((2, 3, 500), [40], [3], [9, 20], [2]),
          ((1, 64, 112, 112), [3, 3], [2, 2], [1] * 4, [1, 1]), ((4, 256, 56, 56), [2, 2], [2, 2], [0] * 4, [1, 1]),
          ((2, 5, 41, 43), [3, 5], [1, 2], [1, 2, 2, 0], [2, 3]), ((2, 64, 16, 56, 56), [2] * 3, [2] * 3, [0] * 6, [1] * 3),
          ((2, 5, 9, 10, 24), [3, 2, 3], [2, 1, 1], [1] * 6, [1] * 3))),
    *(("MaxPool", [later(*dims, kind=kind)], {"kernel_shape": kernel, "strides": kernel, "storage_order": order}, 2)
      for kind in (np.float32, np.float16) for order in (0, 1)
      for dims, kernel in (((2, 64, 112, 112), [2, 2]), ((2, 5, 9, 10, 24), [3, 2, 3]))),
    ("OneHot", [indices(30, 50), ints(30)[0], np.array([0.5, 2], np.float32)], {"axis": 0}, 1),
    ("Trilu", [later(3, 70, 90), ints(2)[0]], {}, 1),
    *((op, [later(*dims)], {"axis": 1}, 1) for op in ("ArgMax", "ArgMin")
      for dims in ((2, 3000), (2, 21, 200, 200), (3, 5), (1, 50257), (9, 70000))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "outputs"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_a_node_gives_what_onnxruntime_gives(op, inputs, attributes, outputs):
    inputs = [make() if callable(make) else make for make in inputs]
    model, feeds = model_of(op, inputs, attributes, outputs, 20), {"x0": inputs[0]}
    engine = ptp.build(model, engine="cuda")
    assert not {ARRAYS, UNCAPTURED} & set(engine.choices)
    with engine.create_context() as context:
        for _ in range(3):  # the second is a graph's
            for found, wanted in zip(context.run(feeds).values(), literal(model, feeds), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 if op == "CumSum" else 1e-5)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_pixels_between_convolutions(precision):
    weights = random(12, 12, 1, 1, seed=2)
    x, places = f(1, 12, 20, 20), grid(1, 30, 4, 2)
    model = model_of("GridSample", [x, places], {}, 1, 20)
    model.graph.node.insert(0, convolution("x0", "pixels"))
    model.graph.node[1].input[0] = "pixels"
    model.graph.node.append(convolution("y0", "y"))
    model.graph.output[0].name = "y"
    model.graph.initializer.append(numpy_helper.from_array(weights, "weights"))
    wanted = literal(model, {"x0": x})[0]
    with ptp.build(model, engine="cuda", precision=precision).create_context() as context:
        found = context.run({"x0": x})["y"]
    room = 1e-4 if precision == "fp32" else 1e-2
    assert np.linalg.norm(found - wanted) < room * np.linalg.norm(wanted)


def convolution(x, y):
    return helper.make_node("Conv", [x, "weights"], [y], y)
