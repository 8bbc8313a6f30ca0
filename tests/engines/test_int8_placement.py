"""Q/DQ stands where the libraries' int8 kernels want it: which operators they compute in int8, and with which numbers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines import BuildOptions
from pytrtplugins.engines.onnxruntime import OnnxruntimeEngine
from pytrtplugins.engines.openvino import CpuEngine
from pytrtplugins.passes import prepare, quantize
from tests.engines.networks import run
from tests.engines.operators import literal
from tests.measures import relative, sqnr
from tests.passes.nets import Net, calibrated, image
from tests.passes.test_placement import ACTIVATIONS, closed, hard_swish, silu

ENGINES = [CpuEngine, OnnxruntimeEngine]


def rectified(net: Net, x: str) -> str:
    return net.add("Relu", [x], f"{x}_relu")


def clipped(net: Net, x: str) -> str:
    """ReLU6."""
    if "six" not in {held.name for held in net.constants}:
        net.constant("zero", np.float32(0))
        net.constant("six", np.float32(6))
    return net.add("Clip", [x, "zero", "six"], f"{x}_relu6")


def plain(activation) -> onnx.ModelProto:
    """Three convolutions, one of them depthwise, each with the activation function, then one in float."""
    net = Net(channels=8, size=16)
    x = activation(net, net.conv("data", "a", 8, leaky=False))
    x = activation(net, net.conv(x, "b", 8, group=8, leaky=False))
    net.conv(activation(net, net.conv(x, "c", 8, leaky=False)), "last", leaky=False)
    return net.model("last")


def residual() -> onnx.ModelProto:
    net = Net(channels=8, size=16)
    a = rectified(net, net.conv("data", "a", 8, leaky=False))
    for name in "bc":
        inner = rectified(net, net.conv(a, name, 8, leaky=False))
        a = rectified(net, net.add("Add", [net.conv(inner, f"{name}2", 8, leaky=False), a], f"{name}_sum"))
    return closed(net, a)


def joined() -> onnx.ModelProto:
    """YOLOv5's and DenseNet's ways: branches, pools, a concatenation."""
    net = Net(channels=8, size=16)
    a = silu(net, net.conv("data", "a", 8, leaky=False))
    pool = net.add("MaxPool", [a], "pool", kernel_shape=[3, 3], pads=[1] * 4)
    b = silu(net, net.conv(a, "b", 8, leaky=False))
    return closed(net, net.add("Concat", [pool, b, a], "route", 24, axis=1))


def averaged() -> onnx.ModelProto:
    net = Net(channels=8, size=16)
    x = rectified(net, net.conv("data", "a", 8, leaky=False))
    pool = net.add("AveragePool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    return closed(net, rectified(net, net.conv(pool, "b", 8, leaky=False)))


def excited() -> onnx.ModelProto:
    """MobileNetV3's block: hard swish, a gate over channels by a hard sigmoid."""
    net = Net(channels=8, size=16)
    x = hard_swish(net, net.conv("data", "a", 8, group=8, leaky=False))
    mean = net.add("ReduceMean", [x, net.constant("axes", np.int64([2, 3]))], "mean", keepdims=1)
    squeezed = rectified(net, net.conv(mean, "squeeze", 4, kernel=1, leaky=False))
    gate = net.add("HardSigmoid", [net.conv(squeezed, "expand", 8, kernel=1, leaky=False)], "gate")
    return closed(net, net.add("Mul", [x, gate], "gated"))


def transformer() -> onnx.ModelProto:
    """Layer norm, a linear layer with a bias, GELU in nodes, a second one, what entered added."""
    net = Net(channels=4, size=16)
    norm = [net.constant(name, np.float32([value] * 16)) for name, value in (("scale", 1), ("shift", 0))]
    x = net.conv("data", "a", 4)
    random = np.random.default_rng(3)
    for name, dims in (("w1", (16, 32)), ("w2", (32, 16))):
        net.constant(name, (random.normal(size=dims) / 4).astype(np.float32))
    net.constant("b1", random.normal(size=32).astype(np.float32))
    y = net.add("MatMul", [net.add("LayerNormalization", [x, *norm], "norm", axis=-1), "w1"], "first")
    y = ACTIVATIONS[-1](net, net.add("Add", [y, "b1"], "biased"))
    return closed(net, net.add("Add", [x, net.add("MatMul", [y, "w2"], "second")], "sum"))


NETWORKS = {
    **{f"plain {activation.__name__}": lambda activation=activation: plain(activation) for activation in ACTIVATIONS},
    "plain relu": lambda: plain(rectified),
    "plain relu6": lambda: plain(clipped),
    "residual": residual,
    "joined": joined,
    "averaged": averaged,
    "excited": excited,
    "transformer": transformer,
}


def quantized(name: str, cls):
    model = prepare(NETWORKS[name]())
    return model, quantize(model, calibrated(model), **cls.quantize_options())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("cls", ENGINES)
def test_the_engine_has_the_numbers_of_the_model_taken_literally(cls, name):
    model, made = quantized(name, cls)
    x = image(model)[:1]
    engine = ptp.build(made, engine=cls.name, precision="int8")
    found = run(engine, {"data": x})["last"]
    wanted = literal(made, {"data": x})[0]
    assert relative(found, wanted) < 0.03  # kernels round ties, and sum, in other orders: some codes are one step away
    assert sqnr(literal(model, {"data": x})[0], found) > 20


@pytest.mark.parametrize("name", NETWORKS)
def test_the_reference_engine_agrees(name):
    model, made = quantized(name, OnnxruntimeEngine)
    x = image(model)[:1]
    found = run(ptp.build(made, engine="reference", precision="int8"), {"data": x})["last"]
    assert relative(found, literal(made, {"data": x})[0]) < 0.01


def kernels_of_onnxruntime(model: onnx.ModelProto, folder) -> Counter[str]:
    """Operators of onnxruntime's own optimized form of the model, by type."""
    engine = OnnxruntimeEngine(model, BuildOptions("int8"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(
        engine._standard_form().SerializeToString(), options, ["CPUExecutionProvider"],
        disabled_optimizers=["MatMulAddFusion"],
    )  # fmt: skip
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("plain silu", {"QLinearConv": 2, "QLinearSigmoid": 2, "QLinearMul": 2}),
        ("plain hard_swish", {"QLinearConv": 2, "HardSigmoid": 2 + 1, "QLinearMul": 2}),
        ("plain gelu", {"QLinearConv": 2}),
        ("plain relu", {"QLinearConv": 2, "Relu": 0}),
        ("plain relu6", {"QLinearConv": 2, "Clip": 0}),
        ("residual", {"QLinearConv": 5, "QLinearAdd": 2, "Relu": 0}),
        ("joined", {"QLinearConv": 2, "QLinearConcat": 1, "QLinearSigmoid": 2, "MaxPool": 0}),
        ("averaged", {"QLinearConv": 2, "QLinearAveragePool": 1, "AveragePool": 0}),
        ("excited", {"QLinearConv": 3, "QLinearGlobalAveragePool": 1, "QLinearMul": 2, "GlobalAveragePool": 0}),
        ("transformer", {"MatMulIntegerToFloat": 1, "QLinearMatMul": 1, "MatMul": 0}),
    ],
)
def test_onnxruntime_computes_in_int8(name, wanted, tmp_path):
    """The third convolution, whose result no int8 layer reads, stays in float behind its activation function."""
    found = kernels_of_onnxruntime(quantized(name, OnnxruntimeEngine)[1], tmp_path)
    assert {op: found[op] for op in wanted} == wanted, found


@pytest.mark.parametrize(
    ("name", "convolutions"),
    [
        ("plain silu", 3),
        ("plain hard_swish", 3),
        ("plain gelu", 3),
        ("plain relu6", 3),
        ("residual", 6),
        ("joined", 3),
        ("excited", 4),
    ],
)
def test_openvino_computes_every_quantized_convolution_in_int8(name, convolutions):
    engine = CpuEngine(quantized(name, CpuEngine)[1], BuildOptions("int8"))
    facts = [op.get_rt_info() for op in engine._network.compiled.get_runtime_model().get_ordered_ops()]
    found = Counter(
        str(each["runtimePrecision"].astype(str)) for each in facts if each["layerType"].astype(str) == "Convolution"
    )
    assert found["u8"] + found["i8"] == convolutions, found
