"""Convolutions and pools of one dimension as images of one row: the numbers of onnxruntime in each form, and which kernels run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from pytrtplugins.engines.cuda.device.layout import FP8
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.test_pointwise import Graph, random
from tests.engines.cuda.lower.test_transposed_convolution import in_codes
from tests.engines.operators import literal
from tests.measures import relative
from tests.passes.nets import Net

COPIES = {"reformat", "pointwise"}


def layer(graph, x, channels, filters, taps, op="Conv", bias=True, **attributes):
    """A convolution with random weights."""
    group, seed = attributes.get("group", 1), len(graph.nodes)
    dims = (filters, channels // group, taps) if op == "Conv" else (channels, filters // group, taps)
    operands = [graph.constant(random(*dims, seed=seed) / np.sqrt(channels // group * taps, dtype=np.float32))]
    if bias:
        operands.append(graph.constant(random(filters, seed=seed + 1)))
    return graph.add(op, x, *operands, **attributes)


def kinds(graph, *results, float_type=DType.FLOAT32, opset=20):
    """The kinds of the steps, all captured, that give onnxruntime's numbers."""
    model = graph.model(*results, opset=opset)
    outputs, execution = run_on_host(model, graph.inputs, float_type)
    room = 1e-5 if float_type is DType.FLOAT32 else 3e-3
    for info, wanted in zip(model.graph.output, literal(model, graph.inputs), strict=True):
        assert outputs[info.name].shape == wanted.shape
        assert relative(outputs[info.name], wanted) < room
    assert all(step.capturable for step in execution.plan.steps)
    return [step.kind for step in execution.plan.steps]


@st.composite
def windows(draw, op):
    """A graph of one operator, and its output."""
    group, taps, length = draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 4)), draw(st.integers(1, 12))
    at = {"strides": [draw(st.integers(1, 3))]}
    at["dilations"] = [draw(st.integers(1, 3)) if op in ("Conv", "ConvTranspose") else 1]
    reach = (taps - 1) * at["dilations"][0] + 1
    rule = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if rule == "NOTSET":
        at["pads"] = [draw(st.integers(0, taps - 1)) for _ in range(2)]
    else:
        at["auto_pad"] = rule
    if rule.startswith("SAME"):  # onnxruntime refuses others
        at["strides"], at["dilations"], reach = [min(at["strides"][0], taps)], [1], taps
    pads = sum(at.get("pads", ())) if rule in ("NOTSET", "VALID") else reach
    graph = Graph(x=random(draw(st.integers(1, 2)), 4, max(length, reach - pads)))
    if op not in ("Conv", "ConvTranspose"):
        if op == "AveragePool":
            at["count_include_pad"] = draw(st.integers(0, 1))
        if rule == "NOTSET":
            at["ceil_mode"] = draw(st.integers(0, 1))
        del at["dilations"]
        return graph, graph.add(op, "x", kernel_shape=[taps], **at)
    if op == "ConvTranspose" and rule == "NOTSET":
        at["output_padding"] = [draw(st.integers(0, at["strides"][0] - 1))]
        size = (graph.inputs["x"].shape[2] - 1) * at["strides"][0] + reach + at["output_padding"][0]
        at["pads"] = at["pads"] if sum(at["pads"]) < size else [0, 0]
    return graph, layer(graph, "x", 4, 6, taps, op, draw(st.booleans()), group=group, **at)


@given(windows("Conv"))
def test_a_convolution_in_any_form_is_one_step(case):
    step_kinds = kinds(*case)
    assert step_kinds.count("conv") == 1
    assert set(step_kinds) <= {"conv", *COPIES}


@given(windows("ConvTranspose"))
def test_a_transposed_convolution_in_any_form_is_one_step_and_a_copy(case):
    step_kinds = kinds(*case)
    assert step_kinds.count("conv") == 1
    assert set(step_kinds) <= {"conv", *COPIES}


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_pool_in_any_form_is_one_step(op):
    @given(windows(op))
    def is_one_step(case):
        assert kinds(*case) == ["indexed"]

    is_one_step()


def test_a_size_of_the_output_is_kept():
    graph = Graph(x=random(2, 4, 5))
    assert "generic" not in kinds(graph, layer(graph, "x", 4, 6, 4, "ConvTranspose", strides=[2], output_shape=[11]))


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
def test_a_chain_with_a_residual_has_no_copies_between(float_type):
    graph = Graph(x=random(2, 16, 20))
    first = graph.add("Relu", layer(graph, "x", 16, 32, 3, pads=[1, 1]))
    second = graph.add("Add", layer(graph, first, 32, 32, 3, pads=[1, 1]), first)
    last = graph.add("Gelu", layer(graph, graph.add("Relu", second), 32, 16, 4, strides=[2]))
    step_kinds = kinds(graph, last, float_type=float_type)
    assert step_kinds == ["reformat", "conv", "conv", "conv"]


def test_rows_of_a_transformer_are_read_and_written_as_they_lie():
    """(N, L, C) in memory is an image of one row in NHWC."""
    graph = Graph(x=random(2, 20, 16))
    rows = graph.add("MatMul", "x", graph.constant(random(16, 32)))
    image = layer(graph, graph.add("Transpose", rows, perm=[0, 2, 1]), 32, 64, 3, strides=[2], pads=[1, 1])
    back = graph.add("Transpose", graph.add("Gelu", image), perm=[0, 2, 1])
    assert kinds(graph, graph.add("MatMul", back, graph.constant(random(64, 8)))) == ["conv"] * 3


def test_a_transposed_convolution_without_borders_writes_its_row_in_place():
    graph = Graph(x=random(2, 16, 20))
    up = graph.add("LeakyRelu", layer(graph, "x", 16, 16, 4, "ConvTranspose", strides=[4]), alpha=0.1)
    assert kinds(graph, layer(graph, up, 16, 8, 3, pads=[1, 1])) == ["reformat", "conv", "conv"]


def test_channels_are_joined_and_split_in_place():
    graph = Graph(x=random(2, 16, 20))
    first = layer(graph, "x", 16, 32, 3, auto_pad="SAME_LOWER", strides=[2])
    graph.nodes.append(helper.make_node("Split", [first], ["half0", "half1"], "split", axis=-2, num_outputs=2))
    gated = graph.add("Mul", "half0", graph.add("Sigmoid", "half1"))
    joined = graph.add("Concat", layer(graph, gated, 16, 16, 1), layer(graph, "half1", 16, 8, 3, pads=[1, 1]), axis=1)
    assert kinds(graph, layer(graph, joined, 24, 8, 1)) == ["reformat", "conv", "pointwise", "conv", "conv", "conv"]


def test_what_stands_between_works_on_images_too():
    graph = Graph(x=random(2, 16, 20), z=random(16, 20))
    x = layer(graph, "x", 16, 16, 3, pads=[1, 1])
    factors = [graph.constant(np.abs(random(16, seed=seed))) for seed in range(4)]
    x = graph.add("BatchNormalization", graph.add("Relu", x), *factors)
    x = graph.add("PRelu", graph.add("Add", x, "z"), graph.constant(random(16, 1)))
    x = graph.add("Where", graph.add("Greater", x, graph.constant(random(20))), x, graph.constant(random(1, 16, 20)))
    centered = graph.add("Sub", x, graph.add("ReduceMean", x, graph.constant(np.array([-1])), keepdims=1))
    gate = graph.add("Sigmoid", layer(graph, graph.add("GlobalAveragePool", centered), 16, 16, 1))
    normal = graph.add("InstanceNormalization", graph.add("Mul", centered, gate), *graph.factors(16))
    last = layer(graph, graph.add("Softmax", normal, axis=1), 16, 8, 1)
    lowered = lower(graph.model(last, opset=20))
    assert [node.op_type for node in lowered.graph].count("Squeeze") == 1
    assert "generic" not in kinds(graph, last)


def test_other_operators_read_rows():
    graph = Graph(x=random(2, 16, 20))
    x = graph.add("Relu", layer(graph, "x", 16, 16, 3, pads=[1, 1]))
    mean = graph.add("ReduceMean", x, graph.constant(np.array([2])), keepdims=0)
    sorted_, _ = graph.add("Identity", x), graph.add("LpPool", x, name="pool", kernel_shape=[3])
    kinds(graph, mean, "pool", sorted_, x)


def test_computed_weights_and_indices_stay():
    graph = Graph(x=random(1, 2, 6), w=random(2, 2, 3))
    last = graph.add("Conv", "x", graph.add("Neg", "w"))
    graph.nodes.append(helper.make_node("MaxPool", [last], ["y", "places"], "pool", kernel_shape=[2]))
    assert [node.op_type for node in lower(graph.model("y", "places")).graph] == ["Neg", "Conv", "MaxPool"]


class Row(Net):
    """Layers of one dimension: a residual, a pool, a transposed convolution and what they are joined to; for INT8."""

    def __init__(self):
        super().__init__(16)
        self.input = ["N", 16, 24]

    def layer(self, x, output, channels=16, kernel=3, act="Relu", **attributes):
        count = self.channels[x]
        weights = self.constant(f"{output}_w", random(channels, count, kernel, seed=len(self.nodes)) / 8)
        bias = self.constant(f"{output}_b", random(channels, seed=len(self.nodes)))
        y = self.add("Conv", [x, weights, bias], output, channels, **attributes)
        return self.add(act, [y], f"{output}_act", channels) if act else y

    def network(self):
        first = self.layer("data", "first", pads=[1, 1])
        second = self.layer(first, "second", act="", pads=[1, 1])
        both = self.add("Relu", [self.add("Add", [second, first], "sum")], "both")
        down = self.add("MaxPool", [both], "down", kernel_shape=[2], strides=[2])
        down = self.layer(down, "middle", 32, pads=[2, 2], dilations=[2])
        weights = self.constant("up_w", random(32, 16, 2, seed=4) / 8)
        up = self.add("ConvTranspose", [down, weights, self.constant("up_b", random(16))], "up", 16, strides=[2])
        joined = self.add("Concat", [both, up], "joined", 32, axis=1)
        return prepare(self.model(self.layer(self.layer(joined, "inner", 16, pads=[1, 1]), "last", 8, 1, act="")))


@pytest.mark.parametrize(
    ("precision", "kind", "room"), [("fp32", DType.FLOAT32, 2e-6), ("int8", DType.INT8, 1e-2), ("fp8", FP8, 5e-2)]
)
def test_codes_stay_codes_between_the_layers(precision, kind, room):
    inputs = {"data": random(2, 16, 24)}
    model = in_codes(Row().network(), inputs, precision)
    outputs, execution = run_on_host(model, inputs)
    assert relative(outputs["last"], literal(model, inputs)[0]) < room
    steps, tensors = execution.plan.steps, execution.plan.tensors
    own = [step for step in steps if step.kind in ("conv", "pool")]
    assert len(own) == 7
    assert {tensors[name].format.dtype for step in own[1:-1] for name in step.inputs[:1]} == {kind}
    assert len(steps) - len(own) <= 2


def of_any_length(**borders):
    """Layers of a row whose length is free, with a transposed convolution."""
    net = Row()
    net.input = ["N", 16, "L"]
    first = net.layer("data", "first", pads=[1, 1], strides=[2])
    second = net.layer(first, "second", auto_pad="SAME_LOWER", kernel=4)
    pooled = net.add("MaxPool", [second], "pooled", kernel_shape=[3], auto_pad="SAME_UPPER")
    weights = net.constant("up_w", random(16, 16, 5, seed=4) / 8)
    up = net.add("ConvTranspose", [pooled, weights], "up", strides=[4], **borders)
    return prepare(net.model(net.layer(up, "last", act="")))


@pytest.mark.parametrize(
    "borders", [{}, {"pads": [1, 0]}, {"pads": [2, 2], "output_padding": [3]}, {"auto_pad": "SAME_LOWER"}], ids=str
)
@pytest.mark.parametrize("length", [24, 31])
def test_lengths_may_be_free(length, borders):
    model, inputs = of_any_length(**borders), {"data": random(3, 16, length)}
    outputs, execution = run_on_host(model, inputs)
    assert relative(outputs["last"], literal(model, inputs)[0]) < 2e-6
    steps = [step.kind for step in execution.plan.steps if step.kind != "pointwise"]
    assert steps == ["reformat", "conv", "conv", "pool", "conv", "conv"]


def test_a_group_norm_of_groups_of_one_channel_is_no_other_order():
    graph = Graph(x=random(2, 16, 20))
    x = layer(graph, "x", 16, 16, 3)
    shape = graph.constant(np.array([0, 16, -1]))
    normal = graph.add("InstanceNormalization", graph.add("Reshape", x, shape), *graph.factors(16))
    last = layer(
        graph, graph.add("Relu", graph.add("Reshape", normal, graph.constant(np.array([2, 16, 18])))), 16, 8, 1
    )
    assert [node.op_type for node in lower(graph.model(last)).graph].count("Reshape") == 0
    kinds(graph, last)


def test_an_input_is_rounded_and_moved_at_once():
    graph = Graph(x=random(2, 21))
    image = graph.add("Unsqueeze", "x", graph.constant(np.array([1])))
    assert kinds(graph, layer(graph, image, 1, 16, 5, strides=[2]), float_type=DType.FLOAT16) == ["reformat", "conv"]
