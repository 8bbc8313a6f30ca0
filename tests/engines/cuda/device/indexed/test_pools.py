"""MaxPool and AveragePool of row-major tensors as one kernel, against onnxruntime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from pytrtplugins.engines.cuda.device.indexed import pools
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.plan.test_moves import Movements
from tests.engines.operators import literal, model_of

OPERATORS = ["MaxPool", "AveragePool"]


def pooled(op, x, attributes, opset=22):
    """The steps of a node, once its output is onnxruntime's."""
    model = model_of(op, [x], attributes, opset=opset)
    found, execution = run_on_host(prepare(model), {"x0": x})
    wanted = literal(model, {"x0": x})[0]
    assert found["y0"].dtype == wanted.dtype
    room = 2e-3 if x.dtype == np.float16 else 1e-6
    np.testing.assert_allclose(found["y0"], wanted, rtol=room, atol=room if op == "AveragePool" else 0)
    return [step.kind for step in execution.plan.steps]


@st.composite
def windows(draw):
    """Attributes of windows along one, two or three axes, and the dims of a tensor that holds one at least."""
    rank = draw(st.integers(1, 3))

    def numbers(low, high):
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    kernel, strides, dilations = numbers(1, 4), numbers(1, 4), numbers(1, 3)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = [r + draw(st.sampled_from([0, 1, 3, 4, 11])) for r in reach]
    if draw(st.booleans()):
        sizes[-1] += -sizes[-1] % 8
    at = {"kernel_shape": kernel, "strides": strides}
    mode = draw(st.sampled_from(["pads", "ceil", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    same = all(s <= k for s, k in zip(strides, kernel, strict=True))  # others onnxruntime refuses
    if mode in ("pads", "ceil") or (mode != "VALID" and not same):
        pads = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
        ceil = mode == "ceil"  # behind the pads onnxruntime has other windows than ONNX says
        at |= {"pads": [*pads[:rank], *[0] * rank], "ceil_mode": 1} if ceil else {"pads": pads}
        at |= {"dilations": dilations} if draw(st.booleans()) else {}
    else:
        at["auto_pad"] = mode
    return at, (2, 3, *sizes)


@settings(max_examples=25)
@given(windows(), st.sampled_from(OPERATORS), st.booleans(), st.sampled_from([np.float32, np.float16]), st.booleans())
def test_every_window_is_one_step(case, op, include, kind, few):
    at, dims = case
    if op == "AveragePool":
        at = at | {"count_include_pad": int(include)}
    with pytest.MonkeyPatch.context() as patch:
        if few:  # several outputs of a thread
            patch.setattr(pools, "_THREADS", 1)
        assert pooled(op, random(*dims).astype(kind), at) == ["indexed"]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("kernel", [(5, 40), (33, 3), (1, 33)])
def test_windows_that_no_registers_hold(op, kernel):
    at = {"kernel_shape": kernel, "strides": [2, 3], "pads": [0, 2, 0, 1]}
    assert pooled(op, random(1, 3, 40, 50), at) == ["indexed"]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.float64])
def test_other_types(kind):
    x = (random(1, 3, 9, 8) * 50).astype(kind)
    assert pooled("MaxPool", x, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}, 12) == ["indexed"]


def test_no_number_wins_and_padding_does_not():
    x = np.full((1, 1, 4, 4), -np.inf, np.float32)
    x[0, 0, 3, 3] = np.nan
    model = model_of("MaxPool", [x], {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]})
    found = run_on_host(prepare(model), {"x0": x})[0]["y0"][0, 0]
    assert np.isnan(found[2, 2])
    found[2, 2] = -np.inf
    assert (found == -np.inf).all()


@pytest.mark.parametrize("op", OPERATORS)
def test_moved_values_are_read_where_they_lie(op):
    graph = Movements(x=random(4, 6, 9, 8))
    turned = graph.turn(graph.slice("x", 1, 1), 0, 1, 3, 2)
    last = graph.add(op, turned, kernel_shape=[2, 3], strides=[1, 2])
    assert graph.check(last) == ["indexed"]


def test_where_a_neighbour_lies_in_nhwc_a_pool_does_too():
    weights = random(8, 8, 1, 1)
    behind = Graph(x=random(1, 8, 6, 6))
    last = behind.add("MaxPool", behind.add("Conv", "x", behind.constant(weights)), kernel_shape=[2, 2])
    assert [kind for kind in behind.check(last, rtol=1e-4, atol=1e-5) if kind != "reformat"] == ["conv", "pool"]
    before = Graph(x=random(1, 8, 6, 6))
    relu = before.add("Relu", before.add("MaxPool", "x", kernel_shape=[2, 2]))
    last = before.add("Conv", before.add("Sin", relu), before.constant(weights))
    assert before.check(last, rtol=1e-4, atol=1e-5) == ["reformat", "pool", "pointwise", "conv"]


def test_between_elementwise_operators_there_are_no_copies():
    graph = Graph(x=random(2, 8, 12, 12))
    last = graph.add("Sin", graph.add("AveragePool", graph.add("Sin", "x"), kernel_shape=[2, 2], strides=[2, 2]))
    assert graph.check(last) == ["pointwise", "indexed", "pointwise"]
    _, execution = run_on_host(graph.model(last), graph.inputs, DType.FLOAT16)
    assert [step.kind for step in execution.plan.steps].count("indexed") == 1


def test_a_number_of_a_pad_counts_as_a_value():
    graph = Movements(x=-np.abs(random(2, 3, 6, 8)))
    padded = graph.pad("x", [0, 0, 1, 1, 0, 0, 1, 1], -0.5)
    assert graph.check(graph.add("MaxPool", padded, kernel_shape=[3, 3], strides=[2, 2])) == ["indexed"]


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", OPERATORS)
def test_behind_a_convolution_the_pads_of_a_rule_are_numbers(op, rule):
    graph = Graph(x=random(1, 8, 7, 10))
    at = {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": rule}
    at |= {"count_include_pad": 1} if op == "AveragePool" else {}
    last = graph.add(op, graph.add("Conv", "x", graph.constant(random(8, 8, 1, 1))), **at)
    assert [kind for kind in graph.check(last, rtol=1e-4, atol=1e-5) if kind != "reformat"] == ["conv", "pool"]


@settings(max_examples=15)
@given(windows(), st.sampled_from([np.float32, np.float16, np.int8]), st.sampled_from([0, 1]), st.booleans())
def test_indices_are_those_of_the_first_of_equal_values(case, kind, order, equal):
    at, dims = case
    x = (np.round(random(*dims)) if equal else random(*dims) * 50).astype(kind)
    model = model_of("MaxPool", [x], {**at, "storage_order": order}, 2, 12)
    outputs, execution = run_on_host(prepare(model), {"x0": x})
    assert [(step.kind, step.capturable) for step in execution.plan.steps] == [("indexed", True)]
    for found, wanted in zip(outputs.values(), literal(model, {"x0": x}), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_first_nan_is_the_largest():
    x = np.full((1, 2, 4, 4), -np.inf, np.float32)
    x[0, 1, 2, 1], x[0, 1, 3, 0] = np.nan, np.nan
    outputs, _ = run_on_host(
        prepare(model_of("MaxPool", [x], {"kernel_shape": [2, 2], "strides": [2, 2]}, 2, 12)), {"x0": x}
    )
    np.testing.assert_array_equal(outputs["y1"], [[[[0, 2], [8, 10]], [[16, 18], [25, 26]]]])
    np.testing.assert_array_equal(np.isnan(outputs["y0"]), [[[[0, 0], [0, 0]], [[0, 0], [1, 0]]]])


@pytest.mark.parametrize("channels", [5, 8])
def test_indices_between_convolutions(channels):
    """In NHWC: with channels that fill a pixel, and others; MaxUnpool reads them."""
    graph = Graph(x=random(2, 4, 12, 10))
    conv = graph.add("Conv", "x", graph.constant(random(channels, 4, 1, 1)))
    at = {"kernel_shape": [2, 2], "strides": [2, 2]}
    graph.nodes.append(helper.make_node("MaxPool", [conv], ["largest", "places"], "pool", **at))
    again = graph.add("Conv", "largest", graph.constant(random(channels, channels, 1, 1)))
    apart = graph.add("MaxUnpool", again, "places", **at)
    assert "indexed" in graph.check(apart, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", OPERATORS)
def test_dilated_windows_between_convolutions(op):
    graph = Graph(x=random(1, 4, 12, 12))
    weights = graph.constant(random(8, 4, 1, 1))
    pool = graph.add(op, graph.add("Conv", "x", weights), kernel_shape=[3, 3], dilations=[2, 2], pads=[1] * 4)
    last = graph.add("Conv", pool, graph.constant(random(8, 8, 1, 1)))
    assert graph.check(last, rtol=1e-4, atol=1e-5).count("indexed") == 1
