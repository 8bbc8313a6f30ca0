"""What the table of refusals says of onnx.reference 1.23.2 is still true: when one fails here, engine reference can compute it."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import pytrtplugins as ptp
from benchmarks.forms.oracles import run_literal
from pytrtplugins.engines.reference.refusals import _INPUTS, _VALUES
from pytrtplugins.errors import BuildError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SET = {
    "activations": 'activations = ["Tanh", "Relu", "Relu"]',
    "clip": "clip = 0.1",
    "input_forget": "input_forget = 1",
}
ROWS = [(op, name) for op in GATES for name in SET if name in _VALUES[op]] + [(op, "sequence_lens") for op in _INPUTS]


@pytest.mark.parametrize(("op", "ignored"), ROWS)
def test_onnx_reference_still_ignores(op, ignored):
    n = GATES[op]
    attribute = SET.get(ignored, "").replace(', "Relu"]', "]" if op == "GRU" else ', "Relu"]')
    lengths, state = "lengths" if ignored == "sequence_lens" else '""', ', "", c' if op == "LSTM" else ""
    text = f"""<ir_version: 8, opset_import: ["": 14]>
        net (float[2, 1, 1] x, float[1, {n}, 1] w, float[1, {n}, 1] r, int32[1] lengths, float[1, 1, 1] c) => (float[2, 1, 1, 1] y)
        {{ y = {op}<hidden_size = 1{", " if attribute else ""}{attribute}>(x, w, r, "", {lengths}{state}) }}"""
    weights = np.linspace(0.6, 1.2, n, dtype=np.float32).reshape(1, n, 1)
    inputs = {"x": np.array([[[1]], [[2]]], np.float32), "w": weights, "r": weights / 2}
    inputs |= {"lengths": np.array([1], np.int32), "c": np.full((1, 1, 1), 2, np.float32)}
    model = onnx.parser.parse_model(text)
    (expected,) = run_literal(model, inputs)
    (found,) = ReferenceEvaluator(model).run(None, inputs)
    assert np.abs(found - expected).max() > 1e-3


def test_onnx_reference_still_limits_the_products_that_attention_gives():
    text = """<ir_version: 10, opset_import: ["": 23]>
        net (float[1, 1, 2, 2] q) => (float[1, 1, 2, 2] y, float[1, 1, 2, 2] products)
        { y, p, v, products = Attention<softcap = 0.5, scale = 1.0> (q, q, q) }"""
    model = onnx.parser.parse_model(text.replace("p, v,", '"", "",'))
    q = np.array([[[[1, 2], [3, 4]]]], np.float32)
    np.testing.assert_allclose(run_literal(model, {"q": q})[1], q @ q.swapaxes(2, 3), rtol=1e-6)
    _, products = ReferenceEvaluator(model).run(None, {"q": q})
    assert np.abs(products).max() <= 0.5
    with pytest.raises(BuildError, match="softcap"):
        ptp.build(model, engine="reference")
