"""KnownShapes: shape arithmetic as PyTorch's exporters write it becomes constants, and the model computes what it did."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.known_shapes import KnownShapes
from pytrtplugins.passes import run_passes
from tests.engines.operators import literal

PADS = """
    s = Shape <start = 2, end = 3> (x)  e = Mod (s, seven)  f = Sub (seven, e)  b = Concat <axis = 0> (zero, f, zero, zero)
    l = Shape (b)  n = Sub (eight, l)  z = ConstantOfShape <value = int64[1] {0}> (n)  a = Concat <axis = 0> (b, z)  r = Reshape (a, pairs)
    v = Slice (r, back, low, zero, back)  t = Transpose <perm = [1, 0]> (v)  p = Reshape (t, back)  y = Pad (x, p)
"""
TENSORFLOW_PADS = """
    s = Shape <start = 2, end = 3> (x)  i = Squeeze (s)  c = Cast <to = 1> (i)  d = Div (c, two)  u = Ceil (d)  m = Mul (u, two)
    h = Sub (m, c)  k = Clip (h, one)  q = Cast <to = 7> (k)  w = Unsqueeze (q, zero)
    p = Concat <axis = 0> (zero, zero, zero, zero, zero, zero, w, zero)  y = Pad (x, p)
"""
QUANTIZED = """
    s = Shape <start = 2, end = 3> (x)  c = Cast <to = 1> (s)  m = Mul (c, tenth)  q = QuantizeLinear (m, scale)
    f = DequantizeLinear (q, scale)  i = Cast <to = 7> (f)  p = Concat <axis = 0> (zero, zero, zero, zero, zero, zero, i, zero)
    y = Pad (x, p)
"""
SCALAR = "e = ConstantOfShape <value = float[1] {2}> (empty)  y = Mul (x, e)"
LENGTHS = """
    s = Shape (x)  b = Shape (s)  o = ConstantOfShape <value = int64[1] {1}> (b)  m = Mul (o, back)  c = Equal (s, m)
    w = Where (c, o, s)  y = Expand (unit, w)
"""
CONSTANTS = (
    "<int64[1] zero = {0}, int64[1] seven = {7}, int64[1] eight = {8}, int64[2] pairs = {-1, 2}, int64[1] back = {-1}, "
    "int64[1] low = {-9223372036854775807}, float two = {2}, float one = {1}, int64[0] empty = {}, float tenth = {0.1}, "
    "float scale = {0.5}, float unit = {1}>"
)


def changed(nodes):
    text = f"g (float[N, 3, 15, 15] x) => (float[a, b, c, d] y) {CONSTANTS} {{ {nodes} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    result = run_passes(onnx.shape_inference.infer_shapes(model), KnownShapes())
    onnx.checker.check_model(result, full_check=True)
    return model, result


KNOWN = {
    "pads of a window": (PADS, ["Pad"]),
    "pads as TensorFlow's": (TENSORFLOW_PADS, ["Pad"]),
    "a scalar": (SCALAR, ["Mul"]),
    "a quantized size": (QUANTIZED, ["Pad"]),
    "dims, some of them free": (LENGTHS, ["Shape", "Where", "Expand"]),
    "no shapes": ("y = Relu (x)", ["Relu"]),
}


@pytest.mark.parametrize(("nodes", "left"), KNOWN.values(), ids=KNOWN)
def test_known_arithmetic_becomes_constants(nodes, left):
    model, result = changed(nodes)
    operators = [node.op_type for node in result.graph.node if node.op_type != "Constant"]
    assert operators == left
    for size in (1, 2):
        x = np.random.default_rng(size).standard_normal((size, 3, 15, 15), np.float32)
        np.testing.assert_array_equal(literal(result, {"x": x})[0], literal(model, {"x": x})[0])


NUMBERS = {
    "Add": "v = Add (c, tenth)",
    "Cast": "v = Cast <to = 1> (s)",
    "Ceil": "m = Mul (c, tenth)  v = Ceil (m)",
    "Clip": "v = Clip (c, one, two)",
    "Concat": "v = Concat <axis = 0> (c, c)",
    "ConstantOfShape": "b = Shape (s)  v = ConstantOfShape <value = float[1] {2}> (b)",
    "Div": "v = Div (c, two)",
    "Floor": "m = Mul (c, tenth)  v = Floor (m)",
    "Max": "v = Max (c, two)",
    "Min": "v = Min (c, two)",
    "Mul": "v = Mul (c, tenth)",
    "Neg": "v = Neg (c)",
    "Sqrt": "v = Sqrt (c)",
    "Squeeze": "v = Squeeze (c)",
    "Sub": "v = Sub (c, tenth)",
    "Unsqueeze": "v = Unsqueeze (c, zero)",
}


@pytest.mark.parametrize("operator", NUMBERS)
def test_arithmetic_of_sizes_in_floating_point_is_computed(operator):
    size = "i = Cast <to = 7> (v)  z = ReduceSum <keepdims = 0> (i)  f = Cast <to = 1> (z)  y = Mul (x, f)"
    nodes = f"s = Shape <start = 2, end = 3> (x)  c = Cast <to = 1> (s)  {NUMBERS[operator]}  {size}"
    model, result = changed(nodes)
    assert operator in {node.op_type for node in model.graph.node}
    assert {node.op_type for node in result.graph.node} - {"Mul", "Constant", "Cast", "ReduceSum"} == set()
    assert [node.op_type for node in result.graph.node].count("Mul") == 1
    x = np.ones((1, 3, 15, 15), np.float32)
    np.testing.assert_array_equal(literal(result, {"x": x})[0], literal(model, {"x": x})[0])
