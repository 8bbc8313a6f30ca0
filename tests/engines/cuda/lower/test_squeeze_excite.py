"""Squeeze-and-excitation blocks become one step: onnxruntime's numbers, and what does not match."""

import functools

import numpy as np
import pytest

import pytrtplugins.engines.cuda.lower.squeeze_excite as module
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.cuda.backends.host import available
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import assert_near, run_on_host
from tests.passes.nets import Net, run

SINGLE, HALF = DType.FLOAT32, DType.FLOAT16
ROOM = {SINGLE: 2e-6, HALF: 2e-3}
FUSED, GATE = ["Conv", "SqueezeExcite", "Conv"], ["Conv", "SqueezeExcite", "Pointwise", "Conv"]
needs_compiler = pytest.mark.skipif(not available(), reason="g++ is missing")


def pooled(net, x):
    return net.add("GlobalAveragePool", [x], "mean")


def reduced(net, x, axes=(2, 3), keepdims=1):
    return net.add("ReduceMean", [x, net.constant("axes", np.int64(axes))], "mean", keepdims=keepdims)


def gated(mean=pooled, middle="Relu", gate="Sigmoid", channels=20, hidden=6, group=1, swapped=False, **attributes):
    """A convolution, a mean, two convolutions of one pixel, a product, and a convolution."""
    net = Net(channels=5, size=7)
    x = net.add("Relu", [net.conv("data", "first", channels, leaky=False)], "x", channels)
    net.channels["mean"] = channels
    squeezed = net.conv(mean(net, x), "squeeze", hidden, kernel=1, leaky=False)
    squeezed = net.add(middle, [squeezed], "middle", hidden)
    excited = net.conv(squeezed, "excite", channels, kernel=1, leaky=False, group=group)
    gates = net.add(gate, [excited], "gate", channels, **attributes)
    net.add("Mul", [gates, x] if swapped else [x, gates], "product", channels)
    return net


def finished(net, output="product"):
    return prepare(net.model(net.conv(output, "last", 4, kernel=1)))


def image(count=2):
    return {"data": np.random.default_rng(1).standard_normal((count, 5, 7, 7), dtype=np.float32)}


def by_onnxruntime(model, inputs):
    return run(model, inputs["data"], [output.name for output in model.graph.output])


def steps_of(execution):
    return [step.op for step in execution.plan.steps if step.kind != "reformat"]


def operators(model, **options):
    return [node.op_type for node in lower(model, ("patches",), **options).graph]


BLOCKS = {
    "EfficientNet": {"middle": "HardSwish", "mean": functools.partial(reduced, axes=(-1, 2))},
    "MobileNetV3": {"gate": "HardSigmoid", "alpha": 1 / 6, "swapped": True},
    "RegNet": {},
    "more hidden values than channels": {"channels": 8, "hidden": 40, "middle": "LeakyRelu"},
}


@needs_compiler
@pytest.mark.parametrize("float_type", [SINGLE, HALF])
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_a_block_is_one_step_with_onnxruntimes_numbers(block, float_type):
    model = finished(gated(**block))
    outputs, execution = run_on_host(model, image(), float_type, ("patches",))
    assert steps_of(execution) == FUSED
    assert all(step.capturable for step in execution.plan.steps)
    assert_near(outputs, by_onnxruntime(model, image()), ROOM[float_type])


@needs_compiler
@pytest.mark.parametrize("float_type", [SINGLE, HALF])
def test_a_product_that_joins_elementwise_operators_stays_with_them(float_type):
    net = gated()
    net.add("Relu", [net.add("Add", ["product", "x"], "sum", 20)], "more", 20)
    model = finished(net, "more")
    outputs, execution = run_on_host(model, image(), float_type, ("patches",))
    assert steps_of(execution) == GATE
    assert_near(outputs, by_onnxruntime(model, image()), ROOM[float_type])


@needs_compiler
def test_large_images_are_scaled_by_all_multiprocessors(monkeypatch):
    monkeypatch.setattr(module, "_MAX_SCALED", 20 * 49 - 1)
    model = finished(gated())
    outputs, execution = run_on_host(model, image(), disable=("patches",))
    assert steps_of(execution) == GATE
    assert_near(outputs, by_onnxruntime(model, image()), ROOM[SINGLE])


@needs_compiler
def test_without_images_nothing_runs():
    _, execution = run_on_host(finished(gated()), image(0), disable=("patches",))
    assert steps_of(execution) == FUSED


@needs_compiler
def test_beside_int8_it_stays_in_float():
    model = finished(gated())
    quantized = prepare(quantize(model, calibrate(model, MinMaxCalibrator([image()]), progress=False)))
    outputs, execution = run_on_host(quantized, image(), HALF, ("patches",))
    assert steps_of(execution) == FUSED
    assert_near(outputs, by_onnxruntime(quantized, image()), ROOM[HALF])


def test_it_can_be_left_out():
    lowered = lower(finished(gated()), ("patches", "squeeze-excite"))
    assert [node.op_type for node in lowered.graph] == ["Conv", "GlobalAveragePool", "Conv", "Conv", "Mul", "Conv"]


@pytest.mark.parametrize(
    ("limit", "value"),
    [("_MAX_CHANNELS", 19), ("_MAX_HIDDEN", 5), ("_MAX_WEIGHTS", 119), ("_MAX_READ", 20 * 49 - 1)],
)
def test_large_blocks_stay_as_they_are(limit, value, monkeypatch):
    model = finished(gated())
    assert "SqueezeExcite" in operators(model)
    monkeypatch.setattr(module, limit, value)
    assert "SqueezeExcite" not in operators(model)


@pytest.mark.parametrize(
    "net",
    [
        gated(mean=functools.partial(reduced, axes=(1, 2))),
        gated(mean=functools.partial(reduced, axes=(3,))),
        gated(mean=lambda net, x: net.add("GlobalMaxPool", [x], "mean")),
        gated(group=2),
    ],
    ids=["other axes", "one axis", "the largest value", "groups"],
)
def test_what_does_not_match_stays_as_it_is(net):
    assert "SqueezeExcite" not in operators(finished(net))


def test_a_mean_that_something_else_reads_stays():
    net = gated()
    model = finished(net, net.add("Add", ["product", "mean"], "more", 20))
    assert "SqueezeExcite" not in operators(model)


def test_images_that_are_the_networks_input_stay():
    net = Net(channels=8, size=7)
    gates = net.conv(net.conv(pooled(net, "data"), "squeeze", 4, kernel=1), "excite", 8, kernel=1)
    model = prepare(net.model(net.conv(net.add("Mul", ["data", gates], "product", 8), "last", 4)))
    assert "SqueezeExcite" not in operators(model)
