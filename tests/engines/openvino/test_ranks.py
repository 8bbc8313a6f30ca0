"""Operands of another number of axes than their operator takes are refused by the node's name."""

from __future__ import annotations

import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import PytrtpluginsError


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("(float[1,1,2,4] x, float k) => (float[a,b,c,d] y) { y = Attention (x, k, x) }", 23),
        ("""(uint8[1,1,4,4] x, int8 w) => (uint8[a,b,c,d] y) <float s = {0.1}, uint8 z = {0}, int8 t = {0}>
            { y = QLinearConv (x, s, z, w, s, t, s, z) }""", 13),
    ],
)  # fmt: skip
def test_an_operand_without_axes_is_an_error_of_its_node(text, opset):
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> g {text}')
    with pytest.raises(PytrtpluginsError, match=r"node 'y(/\w+)?' \(|node_name 'y(/\w+)?'|Node \(y(/\w+)?\)"):
        ptp.build(model, engine="cpu")
