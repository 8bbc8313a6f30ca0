"""Each activation that ONNX's text lists for recurrent layers, with its own numbers and with the node's, against onnxruntime."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest

from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host

NAMES = re.findall(r"^\* (\w+)\(x\)", onnx.defs.get_schema("RNN", 14).doc, re.M)
INPUTS = {
    "x": np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 1, 6),  # steps, batch, values
    "w": np.eye(6, dtype=np.float32)[None],
    "r": np.full((1, 6, 6), 0.05, np.float32),
}
"""The weights are computed in the run, as far as a model knows: constant ones have a kernel."""


GIVEN = ", activation_alpha = [0.75], activation_beta = [0.25]"


def network(name, numbers):
    """One layer of six values with an activation."""
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2,1,6] x, float[1,6,6] w, float[1,6,6] r) => (float[2,1,1,6] y) '
        f'{{ y = RNN <hidden_size = 6, activations = ["{name}"]{numbers}> (x, w, r) }}'
    )


def check(model, right):
    """Require of a model the numbers that onnxruntime has for another."""
    session = onnxruntime.InferenceSession(right.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, INPUTS)
    np.testing.assert_allclose(run_on_host(prepare(model), INPUTS)[0]["y"], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_an_activation_has_onnxruntimes_numbers(name):
    assert len(NAMES) == 11
    check(network(name, GIVEN), network(name, GIVEN))


@pytest.mark.parametrize("name", [name for name in NAMES if onnx.defs.has(name)])
def test_what_the_node_does_not_say_is_as_in_the_operator_of_the_same_name(name):
    """ONNX's text says so; onnxruntime takes 0 for some, and is given them here."""
    defaults = {key: item.default_value.f for key, item in onnx.defs.get_schema(name).attributes.items()}
    alphas = "".join(f", activation_{key} = [{value}]" for key, value in defaults.items() if key in ("alpha", "beta"))
    check(network(name, ""), network(name, alphas))


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("op", "gates", "names"),
    [("GRU", 3, ["HardSigmoid", "Softsign"]), ("LSTM", 4, ["HardSigmoid", "Tanh", "Softsign"])],
)
def test_each_gate_has_its_own_activation(op, gates, names, direction, late):
    sides, random = 1 + (direction == "bidirectional"), np.random.default_rng(3)
    dims = {"x": (3, 2, 4), "w": (sides, 5 * gates, 4), "r": (sides, 5 * gates, 5), "b": (sides, 10 * gates)}
    inputs = {name: random.standard_normal(size, np.float32) for name, size in dims.items()}
    more = f", linear_before_reset = {late}" if op == "GRU" else f", input_forget = {late}" if late else ""
    activations = ", ".join(f'"{name}"' for name in names * sides)
    infos = ", ".join(f"float[{','.join(map(str, size))}] {name}" for name, size in dims.items())
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({infos}) => (float[3,{sides},2,5] y) '
        f'{{ y = {op} <hidden_size = 5, direction = "{direction}", activations = [{activations}]{more}> (x, w, r, b) }}'
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, inputs)
    np.testing.assert_allclose(run_on_host(prepare(model), inputs)[0]["y"], wanted, rtol=1e-5, atol=1e-6)
