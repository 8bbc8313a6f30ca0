"""Resize inside the plan: nearest is a move, linear one kernel; the places are those of ONNX in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from pytrtplugins.engines.cuda.device.index import Index
from pytrtplugins.engines.cuda.device.moves import Source
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.lower.resampling import linear_blend, nearest
from pytrtplugins.engines.cuda.operators import OPS
from pytrtplugins.engines.cuda.operators.attributes import operator_attributes
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.lower.test_transposed_convolution import outputs
from tests.measures import relative
from tests.passes.nets import Net

MODES = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners", "half_pixel_symmetric")
SIDES = ((4, 8), (3, 10), (7, 28), (28, 224), (8, 4), (1, 5), (6, 1), (5, 3), (256, 513))
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def resize(x, to, by_scale=False, **attributes):
    """A graph of one Resize of the last axes."""
    graph, kept = Graph(x=x), x.shape[: x.ndim - len(to)]
    if by_scale:
        factors = [new / old for old, new in zip(x.shape[x.ndim - len(to) :], to, strict=True)]
        operands = ["", graph.constant(np.float32([1] * len(kept) + factors))]
    else:
        operands = ["", "", graph.constant(np.array([*kept, *to]))]
    return graph, graph.add("Resize", "x", *operands, **attributes)


def lowered(graph, name):
    return next(node for node in lower(graph.model(name)).graph if node.op_type == "Resize")


def read(move, x):
    """What a generated kernel would read, by its indices in C."""
    at = [Index.counter(f"i{axis}", size) for axis, size in enumerate(move.dims)]
    numbers = np.meshgrid(*map(np.arange, move.dims), indexing="ij", sparse=True)
    names: dict[str, Any] = {f"i{axis}": each for axis, each in enumerate(numbers)}
    names |= {"min": np.minimum, "max": np.maximum, "whole": np.asarray}
    (piece,) = move.pieces(at)
    text = (index.text.replace("static_cast<int>", "whole").replace("u", "").replace("/", "//") for index in piece.at)
    places = [np.asarray(eval(each, dict(names))) for each in text]
    return np.broadcast_to(x[tuple(np.broadcast_arrays(*places))], move.dims)


def array_by_array(node, x, dims):
    inputs = [None if value is None else value.const_value.numpy() for value in node.inputs[1:]]
    return OPS["Resize"](np, operator_attributes(node), [dims], x, *inputs)


@pytest.mark.parametrize("mode", MODES)
def test_places_are_those_of_onnx(mode):
    for number, (old, new) in enumerate(SIDES):
        x = random(2, old)
        rounding = ROUNDINGS[number % 4]
        graph, name = resize(x, (new,), number % 2, coordinate_transformation_mode=mode, nearest_mode=rounding)
        node = lowered(graph, name)
        move = nearest(node, Source(x.shape, "x"), (2, new))
        assert move is not None, (mode, old, new, rounding)
        np.testing.assert_array_equal(read(move, x), array_by_array(node, x, (2, new)))
        graph, name = resize(x, (new,), number % 2 == 0, coordinate_transformation_mode=mode, mode="linear")
        node = lowered(graph, name)
        blend = linear_blend(node, Source(x.shape, "x"), (2, new))
        assert blend is not None, (mode, old, new)
        found = sum(read(move, x) * factor for move, factor in zip(blend.moves, blend.weights, strict=True))
        np.testing.assert_allclose(found, array_by_array(node, x, (2, new)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"mode": "cubic"}, "indexed"),
        ({"mode": "linear", "antialias": 1}, "indexed"),
        ({"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}, "generic"),
        ({"coordinate_transformation_mode": "tf_crop_and_resize"}, "generic"),
    ],
)
def test_other_modes_have_another_kernel_or_run_array_by_array(attributes, kind):
    graph, name = resize(random(1, 1, 4, 6), (8, 9), **attributes)
    if "coordinate_transformation_mode" in attributes:
        graph.nodes[0].input[1] = graph.constant(np.float32([0, 0, 0, 0, 1, 1, 1, 1]))
    _, execution = run_on_host(graph.model(name), graph.inputs)
    assert [step.kind for step in execution.plan.steps] == [kind]


def test_a_linear_resize_is_one_kernel():
    graph, name = resize(random(2, 3, 5, 4), (10, 9), mode="linear", coordinate_transformation_mode="align_corners")
    assert graph.check(name) == ["pointwise"]


def test_a_linear_resize_of_an_image_writes_the_output_of_the_network():
    """As the last step of segmentation: float16 with channels last is read, linear float32 is written."""
    graph = Graph(x=random(1, 8, 3, 4))
    first = graph.add("Conv", "x", graph.constant(random(5, 8, 1, 1) / 3))
    sizes = graph.constant(np.array([1, 5, 7, 12]))
    last = graph.add("Resize", first, "", "", sizes, mode="linear", coordinate_transformation_mode="pytorch_half_pixel")
    model = graph.model(last)
    found, execution = run_on_host(model, graph.inputs, DType.FLOAT16)
    assert [step.kind for step in execution.plan.steps] == ["reformat", "conv", "pointwise"]
    assert relative(found[last], outputs(model, graph.inputs)[0]) < 2e-3


def test_volumes_and_rows_are_resized_by_one_kernel():
    for x, to in ((random(1, 2, 2, 3, 4), (4, 5, 8)), (random(2, 3, 5), (11,))):
        graph, name = resize(x, to, mode="linear")
        assert graph.check(name) == ["pointwise"]


def test_a_sum_reads_a_nearest_resize_where_it_lies():
    """As a feature pyramid: what is resized is never written."""
    graph, name = resize(random(1, 3, 4, 5), (8, 10), mode="nearest", coordinate_transformation_mode="asymmetric")
    graph.inputs["y"] = random(1, 3, 8, 10, seed=1)
    assert graph.check(graph.add("Add", name, "y")) == ["pointwise"]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_images_stay_channels_last_and_go_into_the_concat(mode):
    graph = Graph(x=random(1, 8, 4, 4))

    def conv(x, channels, filters, stride=1):
        weights = graph.constant(random(filters, channels, 1, 1) / 3)
        return graph.add("Conv", x, weights, strides=[stride, stride])

    kept = conv("x", 8, 8)
    scales = graph.constant(np.float32([1, 1, 2, 2]))
    up = graph.add("Resize", conv(kept, 8, 16, 2), "", scales, mode=mode)
    last = conv(graph.add("Concat", up, kept, axis=1), 24, 8)
    model = graph.model(last)
    found, execution = run_on_host(model, graph.inputs, DType.FLOAT16)
    assert relative(found[last], outputs(model, graph.inputs)[0]) < 2e-3
    plan = execution.plan
    assert {step.kind for step in plan.steps} == {"reformat", "conv", "pointwise"}
    assert plan.tensors[up].storage == plan.tensors[kept].storage


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
def test_factors_say_the_dims_of_any_batch_in_each_type(float_type):
    net = Net(channels=8)
    scales = net.constant("scales", np.float32([1, 1, 2, 2]))
    up = net.add("Resize", [net.conv("data", "first", 8), "", scales], "up", 8, mode="nearest")
    model, x = prepare(net.model(net.conv(up, "last", 8, leaky=False))), {"data": random(3, 8, 8, 8)}
    found, execution = run_on_host(model, x, float_type)
    assert execution.plan.tail is None
    assert relative(found["last"], outputs(model, x)[0]) < 2e-3


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("by_scale", [False, True])
def test_a_resize_that_changes_no_axis_costs_nothing(mode, by_scale):
    x = random(1, 3, 4, 5)
    graph, name = resize(x, (4, 5), by_scale, mode=mode, coordinate_transformation_mode="half_pixel")
    result = graph.add("Relu", name)
    found, execution = run_on_host(prepare(graph.model(result)), {"x": x})
    np.testing.assert_array_equal(found[result], np.maximum(x, 0))
    assert len(execution.plan.steps) == 1


def test_a_resize_by_a_factor_near_one_is_no_copy():
    x = random(1, 2, 3, 3)
    graph, name = resize(x, (3.3, 3.3), True, mode="linear", coordinate_transformation_mode="asymmetric")
    found, _ = run_on_host(prepare(graph.model(name)), {"x": x})
    (wanted,) = ReferenceEvaluator(graph.model(name)).run(None, {"x": x})  # onnxruntime copies where no size changes
    np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(found[name], x)
