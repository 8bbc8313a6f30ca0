"""NonMaxSuppression as one kernel in the graph, of whose results the number is read back: the rows of onnxruntime, bit by bit."""

import numpy as np
import pytest
from onnx import helper

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import ints, literal, model_of
from tests.randomness import generator

RNG = generator(7)


def boxes(images=2, count=90, centered=False):
    """Boxes of which many overlap."""
    places, sides = RNG.random((images, count, 2)) * 60, RNG.random((images, count, 2)) * 30
    corners = (places, sides) if centered else (places - sides / 2, places + sides / 2)
    return np.concatenate(corners, -1).astype(np.float32)


def scores(images=2, classes=3, count=90):
    """Scores of which many are equal."""
    return np.round(RNG.random((images, classes, count)), 1).astype(np.float32)


def suppression(inputs, **attributes):
    return model_of("NonMaxSuppression", inputs, attributes, 1, 11)


def kinds(execution):
    return [step.kind for step in execution.plan.steps]


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("limits", "centered"),
    [
        ([ints(5), floats(0.3), floats(0.25)], 0),
        ([ints(2**40), floats(0.5)], 1),  # all may stay
        ([ints(4)], 0),  # none that touches another
        ([ints(90), floats(1)], 0),
        ([ints(3), floats(0.5), floats(2)], 0),  # none is good enough
    ],
)
def test_the_rows_are_onnxruntimes(limits, centered):
    x = boxes(centered=bool(centered))
    model = suppression([x, scores(), *limits], center_point_box=centered)
    outputs, execution = run_on_host(prepare(model), {"x0": x})
    assert kinds(execution) == ["indexed", "tail"]
    assert execution.plan.steps[0].capturable
    wanted = literal(model, {"x0": x})[0]
    np.testing.assert_array_equal(outputs["y0"], wanted)
    assert outputs["y0"].dtype == wanted.dtype


def test_corners_in_any_order_and_many_classes():
    x = boxes(1)[..., [2, 1, 0, 3]]
    model = suppression([x, scores(1, 300), ints(2), floats(0.4)])
    outputs, _ = run_on_host(prepare(model), {"x0": x})
    np.testing.assert_array_equal(outputs["y0"], literal(model, {"x0": x})[0])


def test_a_free_number_of_images_and_nodes_behind():
    """The boxes that stay are gathered from the boxes."""
    x = boxes()
    model = suppression([x, scores(), ints(5), floats(0.3), floats(0.25)])
    graph = model.graph
    graph.input.add().CopyFrom(helper.make_tensor_value_info("x1", 1, ["N", 3, 90]))
    del graph.initializer[0]
    graph.input[0].CopyFrom(helper.make_tensor_value_info("x0", 1, ["N", 90, 4]))
    graph.node.append(helper.make_node("Cast", ["y0"], ["rows"], to=1))
    graph.node.append(helper.make_node("ReduceSum", ["rows"], ["sum"], keepdims=0))
    graph.output.add(name="sum")
    graph.output[1].type.tensor_type.elem_type = 1
    for images in (1, 2):
        feeds = {"x0": x[:images], "x1": scores(images)}
        outputs, execution = run_on_host(prepare(model), feeds)
        assert "indexed" in kinds(execution)
        for found, wanted in zip(outputs.values(), literal(model, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_network_in_float16_suppresses_by_scores_in_float32():
    x, near = boxes(1, 40), floats(*(0.5 + np.arange(40) * 1e-5)).reshape(1, 1, 40)
    model = suppression([x, near, ints(40), floats(0.9)])
    outputs, _ = run_on_host(prepare(model), {"x0": x}, DType.FLOAT16)
    np.testing.assert_array_equal(outputs["y0"], literal(model, {"x0": x})[0])


def operators(model, disable=()):
    return {node.op_type for node in lower(prepare(model), disable).graph}


def test_what_does_not_match_stays_a_node_of_its_own():
    x, y = boxes(), scores()
    for limits in ([], [ints(0)], [None, floats(0.5)]):
        assert "Suppress" not in operators(suppression([x, y, *limits]))
    assert "Suppress" not in operators(suppression([x, y, ints(5)]), ["pointwise"])
    computed = suppression([x, y, ints(5)])
    computed.graph.initializer.pop()
    computed.graph.input.add().CopyFrom(helper.make_tensor_value_info("x2", 7, [1]))
    assert "Suppress" not in operators(computed)
    assert "Suppress" in operators(suppression([x, y, ints(5)]))
