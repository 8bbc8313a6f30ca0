"""Whole numbers beyond 32 bits inside a network, which OpenVINO keeps in 32: engine `cpu` gives onnxruntime's, or refuses by name."""

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.openvino.arrays import is_long, is_peculiar
from pytrtplugins.engines.openvino.bounds import LONGEST
from pytrtplugins.errors import BuildError
from tests.engines.operators import literal

X = {"x": np.array([70_000, 3_000_000_000, 5], np.float32)}
OPERATORS = {  # on a, of 70,000, 3,000,000,000 and 5; and w, of 2^31 + 5, 65,536 and 46,341
    **{op: f"b = {op} (a, w)" for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")},
    "CumSum": "p = Mul (a, w) b = CumSum (p, zero)",
    "ReduceSum": "p = Mul (a, w) b = ReduceSum <keepdims = 0> (p)",
    "ReduceMax": "p = Mul (a, w) b = ReduceMax <keepdims = 0> (p)",
    "Gather": "p = Mul (a, w) b = Gather (p, places)",
    "Concat": "p = Mul (a, w) b = Concat <axis = 0> (p, a)",
    "Clip": "p = Mul (a, w) b = Clip (p, first, second)",
    "Where": "p = Mul (a, w) c = Greater (p, a) b = Where (c, p, w)",
    "Greater": "p = Mul (a, w) b = Greater (p, w)",
    "Equal": "p = Add (a, w) b = Equal (p, sum)",
}
NOT_IN_ONNXRUNTIME = {("CumSum", "uint32"), ("CumSum", "uint64"), ("Where", "uint64")}
NOT_IN_ONNXRUNTIME |= {(op, kind) for op in ("ReduceSum", "ReduceMax") for kind in ("uint32", "uint64")}


@pytest.mark.parametrize(
    ("numbers", "long"),
    [
        ([], False),
        ([-(2**31), 2**31 - 1], False),
        ([-(2**31) - 1, 0], True),
        ([0, 2**31], True),
        ([-(2**31) - 1, 2**31], True),
    ],
)
def test_numbers_that_openvino_keeps_in_32_bits(numbers, long):
    assert is_long(np.array(numbers, np.int64)) is long


@pytest.mark.parametrize(
    ("dims", "peculiar"),
    [((), False), ((2, 0), True), ((LONGEST, 1), False), ((1, LONGEST + 1), True), ((LONGEST + 1, 1), True)],
)
def test_inputs_of_which_openvino_loses_something(dims, peculiar):
    assert is_peculiar(np.zeros(dims, np.int8)) is peculiar


def model(op, kind):
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = onnx.parser.parse_graph(
        f"g (float[3] x) => (float y) {{ a = Cast <to = {number}> (x) {OPERATORS[op]} y = Cast <to = 1> (b) }}"
    )
    graph.output[0].type.tensor_type.ClearField("shape")
    w = np.array([2**31 + 5, 65_536, 46_341])
    constants = {
        "w": w.astype(kind),
        "zero": np.int64(0),
        "places": np.array([2, 0]),
        "sum": (w + X["x"].astype(int)).astype(kind),
    }
    constants |= {"first": np.array(7, kind), "second": np.array(2**32 - 9, kind)}
    read = {name for node in graph.node for name in node.input}
    graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in constants.items() if name in read
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("kind", ["int64", "uint64", "uint32"])
@pytest.mark.parametrize("op", OPERATORS)
def test_numbers_beyond_32_bits_are_right_inside_a_network(op, kind):
    network = model(op, kind)
    if (op, kind) in NOT_IN_ONNXRUNTIME:
        with pytest.raises(BuildError, match=f"engine 'cpu'.* {op} "):
            ptp.build(network, engine="cpu", progress=False)
        return
    with ptp.build(network, engine="cpu", progress=False).create_context() as context:
        np.testing.assert_array_equal(context.run(X)["y"], literal(network, X)[0])
