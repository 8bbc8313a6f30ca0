"""Lowering and fusion: what becomes of standard operators, and that the numbers stay."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.lower.pipeline import OPTIONAL_STEPS, check_disable, lower
from pytrtplugins.engines.cuda.lower.qdq import AbsorbResidualScales, FoldCasts
from pytrtplugins.engines.cuda.lower.rewrite import DOMAIN
from pytrtplugins.errors import UsageError
from pytrtplugins.layers import Reorg
from pytrtplugins.model.ir import operand
from pytrtplugins.passes import prepare, quantize, to_ir, to_proto
from pytrtplugins.passes.half import to_half
from pytrtplugins.plugin.onnx_node import node_attributes
from pytrtplugins.tensor import DType
from tests.engines.cuda.branches import inception
from tests.engines.cuda.host import assert_close, by_reference, run_on_host
from tests.engines.model_parts import model as model_of
from tests.passes.nets import Net, Swap


def counted(model):
    return Counter(node.op_type for node in model.graph)


def convolutions(model):
    return {node.outputs[0].name: node_attributes(node) for node in model.graph if node.domain == DOMAIN}


def same_numbers(model, inputs):
    """Runs the model lowered and as it was."""
    prepared = prepare(model)
    found, execution = run_on_host(prepared, inputs)
    assert_close(found, by_reference(prepared, inputs), 2e-5)
    return execution


def data(channels=3, size=8, batch=1):
    return {"data": np.random.default_rng(2).standard_normal((batch, channels, size, size), dtype=np.float32)}


def in_int8(model, inputs):
    table = calibrate(model, MinMaxCalibrator([inputs]), engine="reference", progress=False)
    return prepare(quantize(model, table))


def residual_block(behind="Relu"):
    net = Net(channels=8)
    first = net.conv("data", "first", 8)
    second = net.conv(first, "second", 8, leaky=False)
    added = net.add("Add", [second, first], "added")
    return net.model(net.conv(net.add(behind, [added], "acted") if behind else added, "last", 4, leaky=False))


def test_a_convolution_takes_its_activation_and_keeps_the_tensors_name():
    net = Net()
    lowered = lower(prepare(net.model(net.conv(net.conv("data", "a"), "b", leaky=False))), disable=("patches",))
    assert counted(lowered) == {"Conv": 2}
    found = convolutions(lowered)
    assert list(found) == ["a_leaky", "b"]
    assert found["a_leaky"]["activation"] == "leaky"
    assert found["a_leaky"]["bounds"] == pytest.approx([0.1, 0.0])
    assert found["b"]["activation"] == "linear"


def test_what_something_else_reads_is_not_fused_away():
    net = Net()
    plain = net.conv("data", "plain", leaky=False)
    acted = net.add("Relu", [plain], "acted")
    model = net.model(acted, plain)
    assert counted(lower(prepare(model), disable=("patches",))) == {"Conv": 1, "Relu": 1}
    same_numbers(model, data())


@pytest.mark.parametrize("behind", ["Relu", "Sigmoid", None])
def test_a_residual_and_what_stands_behind_it_go_into_the_convolution(behind):
    model = residual_block(behind)
    lowered = lower(prepare(model))
    assert counted(lowered) == {"Conv": 3}
    block = next(node for node in lowered.graph if operand(node, 3) is not None)
    assert block.inputs[3].name == "first_leaky"
    same_numbers(model, data(8))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("order", [("projection", "main", "deep"), ("main", "deep", "projection")])
@pytest.mark.parametrize("projection_first", [False, True])
def test_a_projection_runs_beside_the_convolutions_that_it_is_added_to(order, projection_first, precision):
    net = Net(channels=8)
    first = net.conv("data", "first", 8)
    for name in order:
        net.conv({"main": first, "deep": "main_leaky", "projection": first}[name], name, 8, leaky=name == "main")
    sides = ["projection", "deep"] if projection_first else ["deep", "projection"]
    added = net.add("Relu", [net.add("Add", sides, "added")], "acted")
    model, inputs = prepare(net.model(net.conv(net.conv(added, "next", 8), "last", 4, leaky=False))), data(8)
    model = in_int8(model, inputs) if precision == "int8" else model
    (adding,) = (node for node in lower(model).graph if operand(node, 3) is not None)
    assert adding.inputs[0].name.startswith("main")
    assert adding.inputs[3].name.startswith("projection")
    found, execution = run_on_host(model, inputs)
    order_of = {name: index for index, step in enumerate(execution.plan.steps) for name in step.outputs}
    projection, deep = order_of[adding.inputs[3].name], order_of[adding.inputs[0].name]
    assert not execution.plan.schedule.ordered(projection, deep)
    assert not execution.plan.schedule.ordered(deep, projection)
    assert_close(found, by_reference(model, inputs, precision), 1e-5)


@pytest.mark.parametrize("shortcut_first", [False, True])
def test_codes_of_a_shortcut_are_added_by_the_convolution_beside_it(shortcut_first):
    net = Net(channels=8)
    first = net.conv("data", "first", 8)
    names = ["shortcut", "main"] if shortcut_first else ["main", "shortcut"]
    for name in names:
        net.conv(first, name, 8, leaky=False)
    added = net.add("Relu", [net.add("Add", ["main", "shortcut"], "added")], "acted")
    model, inputs = prepare(net.model(net.conv(net.conv(added, "next", 8), "last", 4, leaky=False))), data(8)
    quantized = in_int8(model, inputs)
    lowered = lower(quantized, disable=("patches", "stem"))
    assert counted(lowered) == {"QuantizeLinear": 1, "Conv": 5}
    before = lower(quantized, disable=("patches", "stem", "int8-epilogues"))
    AbsorbResidualScales()(before)
    assert all(value.uses() or value.is_graph_output() for node in before.graph for value in node.outputs)
    adding = [node for node in lowered.graph if operand(node, 3) is not None]
    assert [node_attributes(node)["residual_scale"] > 0 for node in adding] == [True]
    found, execution = run_on_host(quantized, inputs)
    assert execution.plan.tensors[adding[0].outputs[0].name].format.dtype is DType.INT8
    assert_close(found, by_reference(prepare(quantized), inputs, "int8"), 1e-5)


def test_int8_takes_in_scales_and_moves_codes():
    net = Net(channels=8)
    first = net.conv("data", "first", 8)
    pooled = net.add("MaxPool", [first], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    swapped = net.plugin(Swap(), pooled, "swapped")
    model = prepare(net.model(net.conv(net.conv(swapped, "second", 8), "last", 4, leaky=False)))
    inputs = data(8)
    quantized = in_int8(model, inputs)
    assert counted(lower(quantized)) == {"QuantizeLinear": 1, "Conv": 3, "Swap": 1}
    assert counted(lower(quantized, ["pools"])) == {"QuantizeLinear": 1, "Conv": 3, "MaxPool": 1, "Swap": 1}
    found, execution = run_on_host(quantized, inputs)
    kinds = [execution.plan.tensors[name].format.dtype for name in ("pooled", "swapped")]
    assert kinds == [DType.INT8, DType.INT8]
    assert_close(found, by_reference(prepare(quantized), inputs, "int8"), 1e-5)


def written_by_others(x_zero, w_zero, axis):
    """A convolution of codes around zero points, with scales of the weights along an axis; by channel of the input, 1."""
    random, constants = np.random.default_rng(4), dict[str, Any]()
    for name, zero, scale in (("x", x_zero, np.float32(0.03)), ("r", x_zero, np.float32(0.05))):
        constants |= {f"{name}_scale": scale, f"{name}_zero": zero}
    constants["w"] = random.integers(-100, 100, (8, 8, 3, 3)).astype(np.int8)
    constants["w_scale"] = random.uniform(0.001, 0.003, 8).astype(np.float32)
    constants["w_zero"] = np.full(8, w_zero, np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["data", "x_scale", "x_zero"], ["x_codes"]),
        helper.make_node("DequantizeLinear", ["x_codes", "x_scale", "x_zero"], ["x_float"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["w_float"], axis=axis),
        helper.make_node("Conv", ["x_float", "w_float"], ["r"], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["r", "r_scale", "r_zero"], ["r_codes"]),
        helper.make_node("DequantizeLinear", ["r_codes", "r_scale", "r_zero"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 8, 8]) for name in ("data", "y")]
    return model_of(nodes, infos[:1], infos[1:], constants, opset=19)


@pytest.mark.parametrize(
    ("x_zero", "w_zero", "axis"),
    [
        *((np.int8(0), w_zero, axis) for w_zero in (0, 7) for axis in (0, 1)),
        *((x_zero, 0, 0) for x_zero in (np.int8(-20), np.uint8(0), np.uint8(128))),
    ],
)
def test_zero_points_and_axes_of_other_quantizers_are_kept_to(x_zero, w_zero, axis):
    """Against ONNX's own evaluator; one code of the result is 0.05."""
    model, inputs = written_by_others(x_zero, w_zero, axis), data(8)
    (wanted,) = ReferenceEvaluator(model).run(None, inputs)
    found, _ = run_on_host(prepare(model), inputs)
    off = np.abs(found["y"] - wanted)
    assert off.max() < 0.051
    assert (off > 1e-5).mean() < 0.01  # sums at the border of two codes
    assert np.unique(wanted).size > 30


def pooled(size=8, **pool):
    net = Net(size=size)
    pool = {"kernel_shape": [2, 2], "strides": [2, 2], **pool}
    pooled = net.add("MaxPool", [net.conv("data", "first", 16)], "pooled", **pool)
    return net.model(net.conv(pooled, "last", 8))


@pytest.mark.parametrize(
    ("size", "pool"),
    [(9, {}), (8, {"strides": [1, 1]}), (8, {"kernel_shape": [3, 3]}), (8, {"pads": [0, 0, 1, 1]}), (8, {})],
)
def test_a_pool_of_blocks_alone_goes_into_the_convolution_before_it(size, pool):
    model = pooled(size, **pool)
    lowered = lower(prepare(model))
    fused = (size, pool) == (8, {})
    assert counted(lowered) == ({"Conv": 2} if fused else {"Conv": 2, "MaxPool": 1})
    assert not fused or convolutions(lowered)["pooled"]["pool"] == 1
    same_numbers(model, data(size=size))


def test_a_pool_of_what_something_else_reads_stays():
    net = Net()
    first = net.conv("data", "first", 16)
    second = net.add("MaxPool", [first], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    model = net.model(net.conv(second, "last", 8), first)
    assert counted(lower(prepare(model)))["MaxPool"] == 1
    same_numbers(model, data())


@pytest.mark.parametrize(("channels", "filters", "fused"), [(3, 16, 1), (1, 32, 1), (4, 64, 1), (5, 16, 0), (3, 24, 0)])
def test_a_stem_of_few_channels_reads_the_image_itself(channels, filters, fused):
    net = Net(channels=channels)
    model = net.model(net.conv(net.conv("data", "first", filters), "last", 8))
    assert convolutions(lower(prepare(model)))["first_leaky"]["image"] == fused
    execution = same_numbers(model, data(channels))
    assert sum(step.kind == "reformat" for step in execution.plan.steps) == 1 - fused


def test_in_int8_the_stem_quantizes_the_image_on_the_way():
    net = Net()
    model = prepare(net.model(net.conv(net.conv(net.conv("data", "first", 16), "second", 8), "last", 4, leaky=False)))
    quantized, inputs = in_int8(model, data()), data()
    assert counted(lower(quantized)) == {"Conv": 3}
    found, _ = run_on_host(quantized, inputs)
    assert_close(found, by_reference(prepare(quantized), inputs, "int8"), 1e-5)


def test_a_model_that_says_its_types_keeps_them_layer_by_layer():
    net = Net()
    second = net.conv(net.conv("data", "first", 16), "second", 8)
    model = prepare(net.model(net.conv(net.plugin(Swap(), second, "swapped"), "last", 4, leaky=False)))
    inputs = data()
    typed = to_half(model, DType.FLOAT16, keep=["second", "second_leaky"])
    found, execution = run_on_host(prepare(typed), inputs)
    convs = [step for step in execution.plan.steps if step.kind == "conv"]
    kinds = [execution.plan.tensors[step.outputs[0]].format.dtype for step in convs]
    assert kinds == [DType.FLOAT16, DType.FLOAT32, DType.FLOAT16]
    assert convs[0].inputs[0] == "data"
    for name, wanted in by_reference(model, inputs).items():
        assert found[name].dtype == np.float32
        assert 0 < np.abs(found[name] - wanted).max() < 5e-3 * np.abs(wanted).max()


def test_every_step_that_can_be_left_out_is_known_and_others_are_refused():
    assert check_disable(OPTIONAL_STEPS) == set(OPTIONAL_STEPS)
    assert check_disable("graph") == {"graph"}
    with pytest.raises(UsageError, match="'fusion' is unknown; there are dead-layers") as caught:
        check_disable(["fusion"])
    assert caught.value.step == "fusion"


def test_the_page_names_every_step_that_can_be_left_out_in_its_order():
    page = (Path(__file__).parents[4] / "docs" / "explanation" / "cuda_engine.md").read_text("utf-8")
    section = page.partition("\n## From model to launch\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert [name for cell in cells for name in re.findall("`(.*?)`", cell)] == list(OPTIONAL_STEPS)


def test_lowering_does_not_change_the_model_that_it_gets():
    model = prepare(inception())
    before = model.SerializeToString(deterministic=True)
    lower(model)
    assert model.SerializeToString(deterministic=True) == before


def passthrough(reverse=False, channels=16):
    """darknet's passthrough: reorg of one tensor joins another in a concat."""
    net = Net(channels=8, size=12)
    side = net.conv("data", "side", channels, kernel=1)
    moved = net.plugin(Reorg(stride=2, reverse=reverse), side, "moved")
    net.channels[moved] = 4 * channels
    down = net.add("MaxPool", [net.conv("data", "main", 8)], "down", kernel_shape=[2, 2], strides=[2, 2])
    return net.model(net.conv(net.add("Concat", [moved, down], "joined", 4 * channels + 8, axis=1), "last", 5))


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("channels", [16, 4])
def test_reorg_is_part_of_the_convolution_before_it_and_writes_into_the_concat(channels, float_type):
    model, inputs = prepare(passthrough(channels=channels)), data(8, 12)
    assert convolutions(lower(model))["moved"]["reorg"] == 2
    found, execution = run_on_host(model, inputs, float_type)
    assert {step.kind for step in execution.plan.steps} <= {"conv", "reformat"}
    assert not [step for step in execution.plan.steps if step.op == "Concat"]
    apart, other = run_on_host(model, inputs, float_type, disable=("reorg",))
    assert [step.op for step in other.plan.steps if step.kind == "plugin"] == ["Reorg"]
    np.testing.assert_array_equal(found["last_leaky"], apart["last_leaky"])


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize(("filters", "pool"), [(5, False), (5, True), (16, True)])
def test_the_last_convolution_writes_the_linear_output_itself_behind_a_pool_too(filters, pool, float_type):
    net = Net(channels=8)
    last = net.conv(net.conv("data", "first", 8), "last", filters)
    last = net.add("MaxPool", [last], "pooled", kernel_shape=[2, 2], strides=[2, 2]) if pool else last
    model, inputs = prepare(net.model(last)), data(8, batch=2)
    found, execution = run_on_host(model, inputs, float_type)
    copied, copying = run_on_host(model, inputs, float_type, disable=("outputs",))
    assert [step.kind for step in execution.plan.steps] == ["reformat", "conv", "conv"]
    assert [step.kind for step in copying.plan.steps] == ["reformat", "conv", "conv", "reformat"]
    half = float_type is DType.FLOAT16
    np.testing.assert_allclose(found[last], copied[last], rtol=1e-3 * half, atol=1e-6 * half)
    assert (found[last] != copied[last]).any() == half, "the output is not rounded to half"


def half_convolution(size, dims=(2, 16, 6, 7), filters=24):
    """A convolution whose tensors are float16, and its inputs."""
    half, rng, result = TensorProto.FLOAT16, np.random.default_rng(0), (dims[0], filters, *dims[2:])
    weights = (rng.standard_normal((filters, dims[1], size, size)) / 8).astype(np.float16)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[size // 2] * 4)
    ends = [helper.make_tensor_value_info(name, half, each) for name, each in (("x", dims), ("y", result))]
    graph = helper.make_graph([node], "half", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model, {"x": rng.standard_normal(dims).astype(np.float16)}


@pytest.mark.parametrize("size", [1, 3])
def test_a_convolution_writes_a_linear_output_of_float16_itself(size):
    model, inputs = half_convolution(size)
    found, execution = run_on_host(prepare(model), inputs, DType.FLOAT16)
    assert [step.kind for step in execution.plan.steps] == ["reformat", "conv"]
    assert_close(found, by_reference(model, inputs), 5e-3)


def test_a_convolution_that_others_read_too_keeps_its_layout():
    net = Net(channels=8)
    first = net.conv("data", "first", 8)
    model = prepare(net.model(first, net.conv(first, "last", 5)))
    _, execution = run_on_host(model, data(8), DType.FLOAT16)
    assert [step.kind for step in execution.plan.steps] == ["reformat", "conv", "conv", "reformat"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e30])
@pytest.mark.parametrize("kind", [DType.INT32, DType.INT8, DType.FLOAT16])
def test_a_constant_that_its_type_does_not_hold_is_cast_without_a_warning(value, kind):
    net = Net()
    numbers = net.constant("numbers", np.float32([1, value, -2]))
    net.add("Cast", [numbers], "whole", 3, to=helper.np_dtype_to_tensor_dtype(kind.numpy))
    network = to_ir(net.model(net.add("Cast", ["whole"], "y", to=TensorProto.FLOAT)))
    assert FoldCasts()(network).modified
    held = {c.name: numpy_helper.to_array(c) for c in to_proto(network).graph.initializer}
    assert held["whole.values"].dtype == kind.numpy
    assert held["whole.values"][[0, 2]].tolist() == [1, -2]
