"""make_session: a model that onnxruntime's own optimizers break runs without them."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from pytrtplugins.engines.host.ort_session import make_session

ENTRY = ("session.x64quantprecision", "1")
WEIGHTS = np.full(96, 127, np.int8)


def dequantized_twice():
    """Constant codes that are dequantized, given, and given once more: QDQS8ToU8Transformer adds one constant twice."""
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["d"]),
        helper.make_node("Identity", ["d"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [96]) for name in ("y", "d")]
    constants = {"w": WEIGHTS, "scale": np.float32(0.5), "zero": np.int8(0)}
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "dequantized twice", [], outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


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
    graph = helper.make_graph(
        [helper.make_node("Nowhere", ["x"], ["y"], domain="com.example")],
        "nowhere",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    with pytest.raises(Exception, match="Nowhere"):
        make_session(helper.make_model(graph, opset_imports=opsets, ir_version=8), 1)
