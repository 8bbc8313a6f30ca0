"""Forms of contrib operators that onnxruntime gets wrong are told from those that it gets right."""

import pytest

from pytrtplugins.passes.contrib import has_faults
from tests.onnx_parts import parsed

SOME = "c = Compress <axis = 0> (x, k)"
FAULTY = {  # nodes → whether a form is one of these
    "y = com.microsoft.FusedMatMul <transA = 1> (x, v)": True,
    "y = com.microsoft.TransposeMatMul <transA = 1> (x, v)": True,
    "y = com.microsoft.FusedMatMul (x, v)": False,
    "y = com.microsoft.FusedMatMul <transA = 1> (x, x)": False,
    "y = com.microsoft.FusedMatMul <transB = 1> (x, v)": False,
    **{
        f"y = com.microsoft.{name} (q, s, z, s{zero})": is_faulty
        for name in ("QLinearLeakyRelu", "QLinearSigmoid")
        for zero, is_faulty in (("", True), (", z", False))
    },
    "y = com.microsoft.SkipLayerNormalization (x, x, v)": False,
    "y = com.microsoft.SkipLayerNormalization (x, e, v)": True,
    "y = com.microsoft.SkipLayerNormalization (e, x, v)": True,
    **{
        f"{SOME} y = com.microsoft.{name} ({inputs})": is_faulty
        for name in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
        for inputs, is_faulty in (("c, x, v", True), ("x, c, v", True), ("c, c, v", True), ("x, x, v", False))
    },
    f"{SOME} r = Relu (c) y = com.microsoft.SkipLayerNormalization (x, r, v)": True,
    f"{SOME} y = com.microsoft.FastGelu (c)": False,
    f"{SOME} y = Relu (c)": False,
}


@pytest.mark.parametrize("nodes", FAULTY)
def test_a_form_is_faulty_or_not(nodes):
    inputs = "float[2,4,4] x, float[4] v, float[0,4,4] e, bool[2] k, uint8[2,4] q, float s, uint8 z"
    assert has_faults(parsed(f"({inputs}) => (y) {{ {nodes} }}", 17, 8)) == FAULTY[nodes]
