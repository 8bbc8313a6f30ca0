"""Activations as one kernel: which are found, and their numbers."""

import itertools
import math

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.activation import ACTIVATIONS, PLAIN
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.activations import FILTERS, IDS, WRITTEN, write
from tests.engines.cuda.host import activated, assert_near, by_reference, run_on_host
from tests.engines.operators import literal
from tests.measures import relative
from tests.passes.nets import Net

KERNELS = pytest.mark.parametrize(("step", "disable"), [("pointwise", ()), ("activation", ("pointwise",))])
TYPES = pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])


def swish(net, x, swapped=False):
    gate = net.add("Sigmoid", [x], "gate")
    return net.add("Mul", [gate, x] if swapped else [x, gate], "acted")


def quick_gelu(net, x, swapped=False):
    factor = net.constant("factor", np.array([1.702], np.float32))
    scaled = net.add("Mul", [factor, x] if swapped else [x, factor], "scaled", net.channels[x])
    gate = net.add("Sigmoid", [scaled], "gate")
    return net.add("Mul", [gate, x] if swapped else [x, gate], "acted")


def mish(net, x, swapped=False):
    gate = net.add("Tanh", [net.add("Softplus", [x], "soft")], "gate")
    return net.add("Mul", [gate, x] if swapped else [x, gate], "acted")


def operators(model):
    return [node.op_type for node in lower(prepare(model), disable=("patches",)).graph]


def found_and_wanted(model, float_type, disable=()):
    inputs = {"data": 4 * np.random.default_rng(0).standard_normal((2, 3, 8, 8), dtype=np.float32)}
    found, execution = run_on_host(prepare(model), inputs, float_type, disable)
    return found, by_reference(prepare(model), inputs), execution.plan


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("write", "kind"), [(swish, "Swish"), (quick_gelu, "QuickGelu"), (mish, "Mish")])
def test_what_is_written_with_several_operators_is_one(write, kind, swapped):
    net = Net()
    x = net.add("Neg", [net.conv("data", "a", 16, leaky=False)], "negated")  # nothing is fused into a Neg
    model = net.model(net.conv(write(net, x, swapped), "last", 8))
    assert operators(model) == ["Conv", "Neg", kind, "Conv"]


def test_every_activation_of_a_convolution_is_written():
    assert {kind for kind, *_ in WRITTEN} == set(ACTIVATIONS) - {"relu", "tanh", "mish"}


def acting(op, constants, attributes, pool=False):
    """A convolution, an activation, a pool behind it perhaps, and a convolution."""
    net = Net(opset=20)
    x = write(net, net.conv("data", "a", FILTERS, leaky=False), "acted", op, constants, attributes)
    x = net.add("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2]) if pool else x
    return net.model(net.conv(x, "last", 8, leaky=False))


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(("kind", "op", "constants", "attributes"), WRITTEN, ids=IDS)
def test_a_convolution_acts_as_onnxruntime_does(kind, op, constants, attributes, pool):
    """A pool goes into the convolution too, unless its activation falls somewhere."""
    model = acting(op, constants, attributes, pool)
    conv, *others = lower(prepare(model), disable=("patches",)).graph
    values, (low, high) = np.linspace(-5, 5, 4001), conv.attributes.get_floats("bounds")
    each_slope = [0.0] if kind != "prelu" else np.ravel(constants[0])
    rises = all(
        (np.diff(activated(values[:, None, None], kind, (low, high), np.array([slope]))[:, 0, 0]) >= 0).all()
        for slope in each_slope
    )
    assert conv.attributes.get_string("activation") == kind
    assert [node.op_type for node in others] == ["MaxPool", "Conv"][rises or not pool :]
    x = {"data": 2 * np.random.default_rng(0).standard_normal((2, 3, 8, 8), dtype=np.float32)}
    (wanted,) = literal(model, x)
    for float_type, direct in itertools.product((DType.FLOAT32, DType.FLOAT16), (False, True)):
        result = run_on_host(prepare(model), x, float_type, direct=direct)[0]["last"]
        assert relative(result, wanted) < (2e-6 if float_type is DType.FLOAT32 else 2e-3)


def hard_swish(net, x):
    return net.add("HardSwish", [x], "acted")


def test_a_convolution_leaves_mish_to_its_kernel():
    net = Net()
    model = net.model(net.conv(mish(net, net.conv("data", "a", 16, leaky=False)), "last", 8))
    assert operators(model) == ["Conv", "Mish", "Conv"]


@pytest.mark.parametrize(("write", "kind"), [(swish, "Swish"), (quick_gelu, "QuickGelu"), (hard_swish, "HardSwish")])
def test_swish_stays_behind_a_residual(write, kind):
    net = Net()
    a = net.conv("data", "a", 16)
    model = net.model(write(net, net.add("Add", [net.conv(a, "b", 16, leaky=False), a], "added")))
    assert operators(model) == ["Conv", "Conv", kind]


def test_a_gate_that_something_else_reads_stays():
    net = Net()
    acted = swish(net, net.conv("data", "a", 16, leaky=False))
    assert operators(net.model(net.conv(acted, "last", 8), "gate")).count("Mul") == 1


@pytest.mark.parametrize("factor", [np.float32(1.7), np.full((1, 16, 1, 1), 1.702, np.float32)])
def test_a_gate_of_another_factor_or_of_one_for_each_channel_stays(factor):
    net = Net()
    x = net.conv("data", "a", 16, leaky=False)
    scaled = net.add("Mul", [x, net.constant("factor", factor)], "scaled")
    acted = net.add("Mul", [x, net.add("Sigmoid", [scaled], "gate")], "acted")
    assert operators(net.model(net.conv(acted, "last", 8))) == ["Conv", "Mul", "Sigmoid", "Mul", "Conv"]


def test_a_gate_of_another_tensor_stays():
    net = Net()
    a, b = (net.conv("data", name, 16, leaky=False) for name in "ab")
    model = net.model(net.add("Mul", [a, net.add("Sigmoid", [b], "gate")], "acted"))
    assert "Swish" not in operators(model)


@KERNELS
@TYPES
@pytest.mark.parametrize("channels", [16, 5])
@pytest.mark.parametrize("write", [swish, quick_gelu, mish, "Sigmoid", "Tanh", "HardSwish"])
def test_activations_give_the_reference_engines_numbers(write, channels, float_type, step, disable):
    net = Net()
    x = net.add("Neg", [net.conv("data", "a", channels, leaky=False)], "negated")  # nothing is fused into a Neg
    acted = net.add(write, [x], "acted") if isinstance(write, str) else write(net, x)
    found, wanted, plan = found_and_wanted(net.model(net.conv(acted, "last", 8)), float_type, disable)
    assert [each.kind for each in plan.steps].count(step) == 1
    assert_near(found, wanted, 2e-6 if float_type is DType.FLOAT32 else 2e-3)


@KERNELS
@TYPES
def test_they_write_into_a_concat(float_type, step, disable):
    net = Net()
    acted = swish(net, net.conv("data", "a", 16, leaky=False))
    model = net.model(net.conv(net.add("Concat", [acted, net.conv("data", "b", 8)], "joined", 24, axis=1), "last", 8))
    steps = found_and_wanted(model, float_type, disable)[2].steps
    assert not [each for each in steps if each.op == "Concat"]


def logistic(x):
    """1 / (1 + e^-x), by the exponential that does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


FORMULAS = {  # of float64
    "Sigmoid": logistic,
    "Tanh": np.tanh,
    "Swish": lambda x: x * logistic(x),
    "QuickGelu": lambda x: x * logistic(np.float32(1.702) * x),
    "Mish": lambda x: x * np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
    "HardSwish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "Gelu": lambda x: x / 2 * np.vectorize(math.erfc)(x * -np.sqrt(0.5)),
    "GeluTanh": lambda x: x * logistic(np.sqrt(8 / np.pi) * (x + 0.044715 * x**3)),
}
TANH = {"approximate": "tanh"}


@KERNELS
@pytest.mark.parametrize("kind", PLAIN)
def test_the_kernel_is_right_far_from_zero_too(kind, step, disable):
    net = Net(channels=4, size=8, opset=20)
    pooled = net.add("MaxPool", ["data"], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    if kind in ("Swish", "QuickGelu"):
        (swish if kind == "Swish" else quick_gelu)(net, pooled)
    else:
        net.add("Gelu" if kind == "GeluTanh" else kind, [pooled], "acted", **TANH if kind == "GeluTanh" else {})
    ones = net.constant("ones", np.ones((4, 1, 1, 1), np.float32))
    model = prepare(net.model(net.add("Conv", ["acted", ones], "y", group=4)))  # so images lie in NHWC
    x = np.array([0, 1e-3, -1e-3, 3, -3, 20, -20, 88, -88, 1000, -1000, 3e38, -3e38, 0.5, -0.5, 6], np.float32)
    values = np.resize(x, (1, 4, 4, 4))
    found, execution = run_on_host(model, {"data": values.repeat(2, axis=2).repeat(2, axis=3)}, disable=disable)
    assert [each.kind for each in execution.plan.steps].count(step) == 1
    np.testing.assert_allclose(found["y"], FORMULAS[kind](values.astype(np.float64)), rtol=1e-6, atol=1e-37)
