"""Where Q/DQ stands for engines whose int8 kernels want more than the common form; numbers against onnxruntime taken literally."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.engines.onnxruntime.engine import PLACEMENT as ONNXRUNTIME
from pytrtplugins.engines.openvino.engine import PLACEMENT as OPENVINO
from pytrtplugins.passes import Placement, quantize, quantized_tensors, to_ir
from tests.measures import sqnr
from tests.passes import nets
from tests.passes.nets import Net


def closed(net: Net, x: str) -> onnx.ModelProto:
    """The net with a quantized convolution behind ``x``, and one in float behind that."""
    net.conv(net.conv(x, "next"), "last", leaky=False)
    return net.model("last")


def codes(model: onnx.ModelProto) -> dict[str, tuple[float, int, str]]:
    """Tensor that is quantized → scale, zero point, type."""
    held = nets.constants(model)
    found = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            scale, zero = held[node.input[1]], held[node.input[2]]
            found[node.input[0]] = (float(scale), int(zero), zero.dtype.name)
    return found


def reads_int8(model: onnx.ModelProto, name: str) -> list[bool]:
    """For each input of a node, whether a DequantizeLinear gives it."""
    made = nets.producers(model)
    node = made[name]
    return [x in made and made[x].op_type == "DequantizeLinear" for x in node.input]


def exact(model: onnx.ModelProto, placement: Placement | None) -> float:
    """Signal to noise of the quantized model, in dB."""
    x = nets.image(model)
    quantized = quantize(model, nets.calibrated(model), placement=placement)
    onnx.checker.check_model(quantized, full_check=True)
    return sqnr(nets.run(model, x, ["last"])["last"], nets.run(quantized, x, ["last"])["last"])


def test_a_leaky_network_has_the_form_that_onnxruntime_computes_in_int8():
    model = nets.tiny_yolo()
    scales = dict.fromkeys(nets.ones(model), 0.01) | {"a": 0.02, "b": 0}
    quantized = quantize(model, CalibrationTable(scales), placement=ONNXRUNTIME)
    held, made = nets.constants(quantized), nets.producers(quantized)
    assert nets.path_up(quantized, "a_leaky", 4) == ["LeakyRelu", "DequantizeLinear", "QuantizeLinear", "Conv"]
    assert held[made["a_quantized"].input[1]] == np.float32(0.02)
    assert made["b_leaky"].input[0] == "b"  # 0 throughout calibration: no scale
    assert made["d_leaky"].input[0] == "d"  # no layer in int8 follows
    both = ["a", "a_leaky", "b_leaky", "c", "c_leaky", "data"]
    assert sorted(nets.quantized_names(quantized)) == [*both, "pool", "route"]
    assert sorted(quantized_tensors(to_ir(model), placement=ONNXRUNTIME)) == sorted([*both, "b"])


def test_pairs_behind_copying_nodes_change_no_value():
    model = nets.tiny_yolo()
    table = nets.calibrated(model)
    repeated = quantize(model, table, placement=Placement(repeated=True))
    assert sorted(nets.quantized_names(repeated)) == ["a_leaky", "b_leaky", "c_leaky", "data", "pool", "route"]
    x = nets.image(model)
    np.testing.assert_array_equal(nets.run(repeated, x, ["e"])["e"], nets.run(quantize(model, table), x, ["e"])["e"])


def silu(net: Net, x: str) -> str:
    return net.add("Mul", [x, net.add("Sigmoid", [x], f"{x}_sigmoid")], f"{x}_silu")


def hard_swish(net: Net, x: str) -> str:
    return net.add("HardSwish", [x], f"{x}_swish")


def hard_swish_of_older_exporters(net: Net, x: str) -> str:
    """x · Clip(x + 3, 0, 6) / 6, as PyTorch wrote it before opset 14."""
    for name, value in (("three", 3), ("zero", 0), ("six", 6)):
        if name not in {held.name for held in net.constants}:
            net.constant(name, np.float32(value))
    clipped = net.add("Clip", [net.add("Add", [x, "three"], f"{x}_3"), "zero", "six"], f"{x}_6")
    return net.add("Div", [net.add("Mul", [x, clipped], f"{x}_product"), "six"], f"{x}_swish")


def gelu(net: Net, x: str) -> str:
    """x · (Erf(x / √2) + 1) / 2, as PyTorch writes it before opset 20."""
    for name, value in (("root", 2**0.5), ("one", 1), ("half", 0.5)):
        if name not in {held.name for held in net.constants}:
            net.constant(name, np.float32(value))
    erf = net.add("Erf", [net.add("Div", [x, "root"], f"{x}_div")], f"{x}_erf")
    product = net.add("Mul", [x, net.add("Add", [erf, "one"], f"{x}_plus")], f"{x}_product")
    return net.add("Mul", [product, "half"], f"{x}_gelu")


def gelu_by_tanh(net: Net, x: str) -> str:
    """x / 2 · (1 + Tanh(√(2/π) · (x + 0.044715 · x³))), as PyTorch and transformers write ``gelu_new``."""
    for name, value in (("half", 0.5), ("one", 1), ("three", 3), ("part", 0.044715), ("root2pi", (2 / np.pi) ** 0.5)):
        if name not in {held.name for held in net.constants}:
            net.constant(name, np.float32(value))
    cubic = net.add("Mul", [net.add("Pow", [x, "three"], f"{x}_pow"), "part"], f"{x}_cubic")
    tanh = net.add(
        "Tanh", [net.add("Mul", [net.add("Add", [x, cubic], f"{x}_inner"), "root2pi"], f"{x}_scaled")], f"{x}_tanh"
    )
    halves = net.add("Mul", [x, "half"], f"{x}_half")
    return net.add("Mul", [halves, net.add("Add", [tanh, "one"], f"{x}_plus")], f"{x}_gelu")


def gelu_of_newer_exporters(net: Net, x: str) -> str:
    """ONNX's own operator, since opset 20."""
    net.opset = 20
    return net.add("Gelu", [x], f"{x}_gelu")


def prelu(net: Net, x: str) -> str:
    """With a slope for each channel, one of them above 1 and one below 0."""
    slopes = np.linspace(-0.2, 1.2, net.channels[x], dtype=np.float32).reshape(-1, 1, 1)
    return net.add("PRelu", [x, net.constant(f"{x}_slopes", slopes)], f"{x}_prelu")


ACTIVATIONS = [silu, hard_swish, hard_swish_of_older_exporters, prelu, gelu_of_newer_exporters, gelu_by_tanh, gelu]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("placement", [None, OPENVINO, ONNXRUNTIME])
def test_every_activation_function_keeps_its_numbers(activation, placement):
    net = Net()
    x = activation(net, net.conv("data", "a", leaky=False))
    assert exact(closed(net, activation(net, net.conv(x, "b", leaky=False))), placement) > 25


def test_silu_is_computed_between_pairs_from_one_result():
    net = Net()
    model = closed(net, silu(net, net.conv("data", "a", leaky=False)))
    quantized = quantize(model, nets.ones(model), placement=ONNXRUNTIME)
    assert reads_int8(quantized, "a_sigmoid") == [True]
    assert reads_int8(quantized, "a_silu") == [True, True]
    assert reads_int8(quantized, "next")[0]
    common = quantize(model, nets.ones(model), placement=OPENVINO)
    assert sorted(nets.quantized_names(common)) == ["a_silu", "data"]


def test_hard_swish_is_written_with_a_gate_that_needs_no_scale_of_the_table():
    net = Net()
    model = closed(net, hard_swish(net, net.conv("data", "a", leaky=False)))
    table = nets.calibrated(model)
    assert "a_swish_gate" not in quantized_tensors(to_ir(model), placement=ONNXRUNTIME)
    quantized = quantize(model, table, placement=ONNXRUNTIME)
    assert codes(quantized)["a_swish_gate"] == (pytest.approx(1 / 255), 0, "uint8")
    assert reads_int8(quantized, "a_swish") == [True, True]
    assert "HardSwish" in {node.op_type for node in model.graph.node}  # the model that was given is as it was


@pytest.mark.parametrize("activation", [hard_swish_of_older_exporters, gelu, gelu_by_tanh, gelu_of_newer_exporters])
def test_in_between_an_activation_function_of_many_nodes_float_is_kept(activation):
    net = Net()
    model = closed(net, activation(net, net.conv("data", "a", leaky=False)))
    names = set(nets.quantized_names(quantize(model, nets.ones(model), placement=ONNXRUNTIME)))
    assert names == {
        "data",
        "a",
        next(name for name in ("a_swish", "a_gelu") if name in nets.producers(model)),
        "next",
    } - {"next"}


@pytest.mark.parametrize("op", ["Relu", "Clip"])
def test_what_rectifies_is_done_by_saturation_at_a_zero_point_of_0(op):
    net = Net()
    if op == "Clip":
        net.constant("zero", np.float32(0))
        net.constant("six", np.float32(6))
    x = net.conv("data", "a", leaky=False)
    model = closed(net, net.add(op, [x, *(["zero", "six"] if op == "Clip" else [])], "rectified"))
    table = CalibrationTable(dict.fromkeys(nets.ones(model), 6 / 127))
    for placement in (OPENVINO, ONNXRUNTIME):
        quantized = quantize(model, table, placement=placement)
        assert codes(quantized)["rectified"] == (pytest.approx(6 / 255), 0, "uint8")
        assert "a" not in codes(quantized)
        assert codes(quantized)["data"][1:] == (0, "int8")
    assert codes(quantize(model, table))["rectified"][1:] == (0, "int8")
    assert exact(model, ONNXRUNTIME) > exact(model, None) - 1


def test_a_rectified_tensor_that_shares_its_scale_with_negative_ones_keeps_its_sign():
    net = Net()
    left = net.add("Relu", [net.conv("data", "a", leaky=False)], "rectified")
    route = net.add("Concat", [left, net.conv("data", "b")], "route", 8, axis=1)
    model = closed(net, route)
    quantized = quantize(model, nets.calibrated(model), placement=ONNXRUNTIME)
    held = codes(quantized)
    assert held["rectified"] == held["b_leaky"] == held["route"]
    assert held["rectified"][2] == "int8"
    assert reads_int8(quantized, "rectified") == [True]  # the saturation of the result before it does not rectify
    assert exact(model, ONNXRUNTIME) > 25


def test_both_sides_of_a_residual_addition_are_int8_where_no_kernel_adds_inside():
    net = Net(channels=4)
    a = net.conv("data", "a")
    added = net.add("Add", [net.conv(a, "b", leaky=False), a], "sum")
    model = closed(net, net.add("Relu", [added], "rectified"))
    assert reads_int8(quantize(model, nets.ones(model), placement=ONNXRUNTIME), "sum") == [True, True]
    assert reads_int8(quantize(model, nets.ones(model), placement=OPENVINO), "sum") == [False, True]
    assert min(exact(model, ONNXRUNTIME), exact(model, OPENVINO)) > 20


def test_an_addition_that_saturation_rectifies_reads_the_models_input_as_int8():
    net = Net(channels=4)
    added = net.add("Add", [net.conv("data", "a", leaky=False), "data"], "sum")
    model = closed(net, net.add("Relu", [added], "rectified"))
    assert reads_int8(quantize(model, nets.ones(model), placement=ONNXRUNTIME), "sum") == [True, True]


def test_a_sum_is_int8_before_a_rectifier_that_saturation_does_not_do():
    net = Net(channels=4)
    a = net.conv("data", "a")
    left = net.add("Relu", [net.add("Add", [net.conv(a, "b"), a], "sum")], "rectified")
    model = closed(net, net.add("Concat", [left, net.conv("data", "c")], "route", 8, axis=1))
    quantized = quantize(model, nets.calibrated(model), placement=ONNXRUNTIME)
    assert reads_int8(quantized, "rectified") == reads_int8(quantized, "sum")[:1] == [True]
    assert exact(model, ONNXRUNTIME) > 20


def test_what_an_engine_does_not_ask_for_is_the_least():
    assert Placement() == Placement(
        layers=frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul")),
        kernels=frozenset(),
        results=frozenset(),
        repeated=False,
        unsigned=False,
        rewritten=False,
        pooled=False,
        fp8_pools=True,
        int8_pools=True,
        sliced_pools=True,
    )


def test_operators_are_written_otherwise_only_where_the_placement_asks_for_it():
    net = Net()
    model = closed(net, hard_swish(net, net.conv("data", "a", leaky=False)))
    found = {
        placement: "HardSwish"
        in [node.op_type for node in quantize(model, nets.ones(model), placement=placement).graph.node]
        for placement in (Placement(), Placement(rewritten=True))
    }
    assert found == {Placement(): True, Placement(rewritten=True): False}


@pytest.mark.parametrize("pool", ["GlobalAveragePool", "ReduceMean"])
def test_a_gate_over_channels_is_int8_all_the_way(pool):
    """Squeeze and excite, as both of PyTorch's exporters write it."""
    net = Net()
    x = net.conv("data", "a", 8)
    if pool == "ReduceMean":
        mean = net.add(pool, [x, net.constant("axes", np.int64([-1, -2]))], "mean", keepdims=1)
    else:
        mean = net.add(pool, [x], "mean")
    gate = net.add("Sigmoid", [net.conv(mean, "squeeze", 8, kernel=1, leaky=False)], "gate")
    model = closed(net, net.add("Mul", [x, gate], "gated"))
    quantized = quantize(model, nets.ones(model), placement=ONNXRUNTIME)
    assert nets.producers(quantized)["mean"].op_type == "GlobalAveragePool"
    assert [reads_int8(quantized, name)[0] for name in ("mean", "squeeze", "gate", "next")] == [True] * 4
    assert reads_int8(quantized, "gated") == [True, True]
    assert exact(model, ONNXRUNTIME) > 25


def test_products_of_matrices_give_float_and_layers_without_a_kernel_stay_in_float():
    net = Net()
    x = net.conv("data", "a")
    w = net.constant("w", np.random.default_rng(0).normal(size=(4, 4, 2, 2)).astype(np.float32))
    x = net.add("ConvTranspose", [x, w], "up", 4, strides=[2, 2])
    x = net.add("MatMul", [x, net.constant("m", np.eye(16, dtype=np.float32))], "product")
    model = closed(net, net.add("Add", [x, net.constant("bias", np.float32([0.5]))], "biased"))
    quantized = quantize(model, nets.ones(model), placement=ONNXRUNTIME)
    assert not any(reads_int8(quantized, "up"))
    assert reads_int8(quantized, "product") == [True, True]
    assert reads_int8(quantized, "biased")[0] is False
    assert reads_int8(quantize(model, nets.ones(model)), "up") == [True, True]


def test_a_result_is_int8_for_everyone_who_reads_it_but_not_as_an_output_of_the_model():
    net = Net()
    a = net.conv("data", "a", leaky=False)
    net.add("Softmax", [a], "softmax", axis=1)
    silu(net, a)
    net.conv(net.conv("a_silu", "next"), "last", leaky=False)
    quantized = quantize(net.model("softmax", "last"), nets.ones(net.model("softmax", "last")), placement=ONNXRUNTIME)
    assert reads_int8(quantized, "softmax") == [True]
    model = net.model("a", "last")
    quantized = quantize(model, nets.ones(model), placement=ONNXRUNTIME)
    assert [output.name for output in quantized.graph.output] == ["a", "last"]
    assert nets.producers(quantized)["a"].op_type == "Conv"


def test_excluded_nodes_stay_in_float_in_every_placement():
    net = Net()
    model = closed(net, silu(net, net.conv("data", "a", leaky=False)))
    quantized = quantize(model, nets.ones(model), placement=ONNXRUNTIME, exclude=["a_silu", "a"])
    assert reads_int8(quantized, "a_silu") == [False, False]
    assert reads_int8(quantized, "a")[0] is False


def test_a_gate_has_its_own_range_whatever_a_calibrator_says():
    """Most values of a gate lie near 0.5, behind which entropy cuts; the range is known to be 0..1."""
    net = Net()
    model = closed(net, silu(net, net.conv("data", "a", leaky=False)))
    table = CalibrationTable({**nets.calibrated(model), "a_sigmoid": 0.5 / 127})
    assert codes(quantize(model, table, placement=ONNXRUNTIME))["a_sigmoid"] == (pytest.approx(1 / 255), 0, "uint8")


def squeezed(pool, *, silu=False):
    """A block of squeeze-and-excitation behind a convolution: pool, two convolutions of one pixel, a product."""
    net = Net(channels=8)
    x = net.conv("data", "a", channels=8)
    y = pool(net, x)
    y = net.conv(y, "squeeze", channels=4, kernel=1, leaky=False)
    y = net.add("Mul", [y, net.add("Sigmoid", [y], "gate")], "silu") if silu else net.add("Relu", [y], "relu")
    y = net.conv(y, "excite", channels=8, kernel=1, leaky=False)
    return closed(net, net.add("Mul", [x, net.add("Sigmoid", [y], "share")], "product"))


POOLS = {
    "global": lambda net, x: net.add("GlobalAveragePool", [x], "pooled"),
    "mean": lambda net, x: net.add("ReduceMean", [x, net.constant("axes", np.array([2, 3]))], "pooled"),
    "mean from the end": lambda net, x: net.add("ReduceMean", [x, net.constant("axes", np.array([-1, -2]))], "pooled"),
}


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_convolutions_of_one_pixel_stay_in_float_where_a_launch_costs_more_than_they_do(pool, silu):
    model = squeezed(pool, silu=silu)
    found = quantize(model, nets.calibrated(model))
    for name in ("squeeze", "excite"):
        assert reads_int8(found, name)[:2] == [False, False]
    assert reads_int8(found, "next")[:2] == [True, True]
    assert "single pixel" in found.metadata_props[-1].value
    for placement in (OPENVINO, ONNXRUNTIME, Placement(pooled=True)):
        assert reads_int8(quantize(model, nets.calibrated(model), placement=placement), "squeeze")[:2] == [True, True]


@pytest.mark.parametrize("activation", ["Elu", "Mish", "Softsign", "Tanh"])
def test_a_pixel_stays_one_behind_every_activation(activation):
    net = Net(channels=8)
    pooled = net.add("GlobalLpPool", [net.conv("data", "a", channels=8)], "pooled")
    x = net.add(activation, [net.conv(pooled, "squeeze", channels=4, kernel=1, leaky=False)], "active")
    model = closed(net, net.conv(x, "excite", channels=8, kernel=1))
    found = quantize(model, nets.calibrated(model))
    assert [reads_int8(found, name)[:2] for name in ("squeeze", "excite")] == [[False, False]] * 2


@pytest.mark.parametrize(
    "pool",
    [
        lambda net, x: net.add("AveragePool", [x], "pooled", kernel_shape=[2, 2]),
        lambda net, x: net.add("ReduceMean", [x, net.constant("axes", np.array([2]))], "pooled"),
        lambda net, x: net.add("Relu", [x], "pooled"),
    ],
    ids=["average", "over rows", "no pool"],
)
def test_convolutions_of_more_pixels_do_not(pool):
    net = Net(channels=8)
    y = pool(net, net.conv("data", "a", channels=8))
    model = closed(net, net.conv(y, "b", channels=8, kernel=1))
    assert reads_int8(quantize(model, nets.calibrated(model)), "b")[:2] == [True, True]
