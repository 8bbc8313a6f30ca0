"""make_session: a model that onnxruntime's own optimizers break runs without them."""

import logging

import numpy as np
import onnxruntime as ort
import pytest

from pytrtplugins.engines.host.ort_session import make_session
from tests.engines.model_parts import parsed

ENTRY = ("session.x64quantprecision", "1")
WEIGHTS = np.full(96, 127, np.int8)


def dequantized_twice():
    """Constant codes that are dequantized, given, and given once more: QDQS8ToU8Transformer adds one constant twice."""
    text = "() => (float[96] y, float[96] d) { d = DequantizeLinear (w, scale, zero) y = Identity (d) }"
    return parsed(text, w=WEIGHTS, scale=np.float32(0.5), zero=np.int8(0))


def test_a_model_that_optimizers_break_runs_without_them(caplog):
    model, options = dequantized_twice(), ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry(*ENTRY)
    with pytest.raises(Exception, match="Attempt to replace the existing tensor"):
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    with caplog.at_level(logging.WARNING):
        session = make_session(model, 1, dict([ENTRY]))
    assert "without its optimizers" in caplog.text
    for array in session.run(["y", "d"], {}):
        np.testing.assert_array_equal(array, WEIGHTS.astype(np.float32) * np.float32(0.5))


def test_a_model_that_onnxruntime_lacks_stays_refused():
    model = parsed("(float[1] x) => (float[1] y) { y = com.example.Nowhere (x) }", domains=["com.example"])
    with pytest.raises(Exception, match="Nowhere"):
        make_session(model, 1)
