"""What engine cuda makes of precisions: planned and run on NumPy arrays, it has the reference engine's errors."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.conv.step import conv_problem
from pytrtplugins.passes import LayerPrecision, Precisions, layer_names
from pytrtplugins.precision import Network, parse_tolerance
from tests.engines.cuda.host import run_on_host
from tests.precision.planted import cancelling, chain, overflowing, samples

COSINE = parse_tolerance("cosine=0.9995")
CASES = {
    "sound": (chain, {}),
    "overflow, pinned": (overflowing, {"conv3": LayerPrecision("fp32", "pin")}),
    "cancellation, half weights": (
        cancelling,
        {"add": LayerPrecision("fp32", "pin"), "left": LayerPrecision("fp32", "half-weights")},
    ),
    "every layer pinned": (chain, {layer: LayerPrecision("fp32") for layer in layer_names(chain())}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tapped", [False, True])
def test_a_network_with_precisions_has_the_errors_of_the_reference_engine(case, tapped):
    make, layers = CASES[case]
    network = Network(make(), "reference")
    precisions = Precisions("fp16", network.digest, layer_names(network.model), layers)
    x = samples(network.model, 1)[0]
    names = [layer.outputs[0] for layer in network.layers] if tapped else list(network.outputs)
    with network.reference(names).create_context() as exact, network.candidate(precisions, names).create_context() as c:
        wanted, emulated = exact.run(x), c.run(x)
    found, _ = run_on_host(network.written(precisions, names), x)
    for name in names:
        assert COSINE.error(found[name], wanted[name]) == pytest.approx(
            COSINE.error(emulated[name], wanted[name]), rel=0.2, abs=1e-5
        )


def test_a_pinned_layer_alone_computes_in_float32():
    network = Network(cancelling(), "reference")
    layer = next(layer for layer in network.layers if layer.name == "add")
    precisions = Precisions("fp16", network.digest, layer_names(network.model), {"add": LayerPrecision("fp32", "pin")})
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(1, 8, 10, 10)).astype(np.float32) for _ in range(2))
    found, execution = run_on_host(network.alone(precisions, layer), {"left": left, "right": right})
    np.testing.assert_array_equal(found["add"], left + right)
    assert "float16" not in {str(placed.format.dtype) for placed in execution.plan.tensors.values()}


def test_float32_convolutions_of_a_float16_network_are_not_rounded_to_tf32():
    network = Network(chain(), "reference")
    precisions = Precisions("fp16", network.digest, layer_names(network.model), {"conv3": LayerPrecision("fp32")})
    _, execution = run_on_host(network.written(precisions), samples(network.model, 1)[0])
    steps = [step for step in execution.plan.steps if step.kind == "conv"]
    exact = {step.name: not conv_problem(step, execution.plan, tf32=False).tensor_cores for step in steps}
    assert exact == {name: name == "conv3" for name in ("conv1", "conv2", "conv3", "conv4", "conv5", "head")}
