"""Codes of constants, folded before the engine's fusions, against onnxruntime on the file as it is."""

import numpy as np
import pytest
from onnx import helper

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.model_parts import F, info
from tests.engines.model_parts import model as model_of
from tests.engines.operators import literal
from tests.randomness import generator

RNG = generator(0)
CODES = RNG.integers(-127, 128, (8, 8, 1, 1)).astype(np.int8)
STEP, ZERO = np.float32(0.02), np.int8(0)


def layer(weights, x_codes):
    """A convolution of codes or floats, whose weights nodes make of constants."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["x_codes"], "x_q"),
        helper.make_node("DequantizeLinear", ["x_codes", "step", "zero"], ["x_values"], "x_dq"),
    ] * x_codes
    nodes += [helper.make_node(op, inputs, outputs, outputs[0]) for op, inputs, outputs in weights]
    nodes.append(helper.make_node("Conv", ["x_values" if x_codes else "x", "w"], ["y"], "conv"))
    constants = {"step": STEP, "other_step": np.float32(0.03), "zero": ZERO, "codes": CODES, "floats": CODES * STEP}
    x, y = (info(name, F, ["N", 8, 4, 4]) for name in "xy")
    return model_of(nodes, [x], [y], constants)


QUANTIZED = [
    ("QuantizeLinear", ["floats", "step", "zero"], ["w_codes"]),
    ("DequantizeLinear", ["w_codes", "step", "zero"], ["w"]),
]
SHARED = [  # as onnxruntime's quantizer writes weights that two layers share
    ("DequantizeLinear", ["codes", "step", "zero"], ["dequantized"]),
    ("QuantizeLinear", ["dequantized", "other_step", "zero"], ["w_codes"]),
    ("DequantizeLinear", ["w_codes", "other_step", "zero"], ["w"]),
]


@pytest.mark.parametrize("weights", [QUANTIZED, SHARED], ids=["quantized", "shared"])
@pytest.mark.parametrize("x_codes", [False, True])
def test_weights_that_nodes_quantize_are_constant_codes(weights, x_codes):
    model, x = layer(weights, x_codes), RNG.uniform(-2, 2, (2, 8, 4, 4)).astype(np.float32)
    found = run_on_host(prepare(model), {"x": x})[0]["y"]
    np.testing.assert_allclose(found, literal(model, {"x": x})[0], rtol=1e-4, atol=1e-4)
    (conv,) = (node for node in lower(prepare(model)).graph if node.op_type == "Conv")
    assert conv.inputs[1].const_value.dtype.name == ("INT8" if x_codes else "FLOAT")
