"""Codes of 16 bits: written with arithmetic for engine cpu, whose library drops their limits."""

import numpy as np
import pytest

pytest.importorskip("openvino")

import onnx
import openvino
from onnx import parser

import pytrtplugins as ptp
from pytrtplugins.passes import WIDE_CODES, write_functions
from pytrtplugins.passes.contrib.wide_codes import may_have_wide_codes
from tests.engines.operators import literal
from tests.passes.contrib.cases import f

X = f(2, 3, 4) * np.float32(3)


def pair(kind="uint16", dims="", steps="{0.00005}", zero="{0}", axis="", last="y = Relu (b)"):
    """x → Q → DQ → another operator → y."""
    return parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[2,3,4] x) => (float[2,3,4] y) <float{dims} s = {steps}, {kind}{dims} z = {zero}>
        {{ a = QuantizeLinear {axis} (x, s, z)
           b = DequantizeLinear {axis} (a, s, z)
           {last} }}"""
    )


MODELS = {
    "uint16": pair(),
    "int16": pair("int16"),
    "int16 from its lowest": pair("int16", zero="{-32768}"),
    "by channel": pair(
        "int16", "[3]", "{0.00005, 0.0001, 0.001}", "{0, -32768, 32767}", "<axis = -2>", "y = Sigmoid (b)"
    ),
    "before an addition": pair(last="y = Add (b, b)"),
    "moved": pair("int16", last="t = Transpose <perm = [0, 2, 1]> (b) y = Transpose <perm = [0, 2, 1]> (t)"),
}


@pytest.mark.parametrize("case", MODELS)
def test_values_are_limited_as_onnx_says(case):
    model = MODELS[case]
    assert may_have_wide_codes(model)
    written = write_functions(model, WIDE_CODES)
    assert all(node.op_type not in ("QuantizeLinear", "DequantizeLinear") for node in written.graph.node)
    onnx.checker.check_model(written, full_check=True)
    (wanted,) = literal(model, {"x": X})
    np.testing.assert_allclose(literal(written, {"x": X})[0], wanted, rtol=1e-6)
    for engine in ("cpu", "onnxruntime", "reference"):
        with ptp.build(model, engine=engine, precision="int8", progress=False).create_context() as context:
            np.testing.assert_allclose(context.run({"x": X})["y"], wanted, rtol=1e-5, err_msg=engine)


def test_codes_of_8_bits_stay():
    model = pair("uint8", steps="{0.02}", zero="{128}")
    assert not may_have_wide_codes(model)
    assert [node.op_type for node in write_functions(model, WIDE_CODES).graph.node][:2] == [
        "QuantizeLinear",
        "DequantizeLinear",
    ]


def test_openvino_still_drops_the_limits():
    """Once it does not, engine cpu need not write these operators."""
    core = openvino.Core()
    (wanted,) = literal(MODELS["before an addition"], {"x": X})
    network = core.compile_model(core.read_model(MODELS["before an addition"].SerializeToString(), b""), "CPU")
    assert not np.allclose(network({"x": X})[0], wanted, rtol=1e-2)
