import numpy as np
import onnx
import pytest

pytest.importorskip("openvino")

import pytrtplugins as ptp
from pytrtplugins.engines.openvino.rewrites.reduces_apart import ReducesApart
from pytrtplugins.passes import to_ir, to_proto
from tests.engines.operators import by_openvino, literal
from tests.passes.nets import passed
from tests.randomness import generator

X = generator(61).random((2, 4, 5), np.float32) + np.float32(0.5)
CONSTANTS = "float half = {0.5}, float[1,4,1] c = {1, 2, 3, 4}, float[1,4] d = {1, 2, 3, 4}, float[4] e = {1, 2, 3, 4}"


def reduced(steps, dims="float[b,4,5]"):
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({dims} x) => (float[p,q] y) <{CONSTANTS}> {{ {steps} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


MEAN = "r = ReduceMean <axes = [2], keepdims = 0> (x) "
WRONG = {
    "sum": reduced(f"{MEAN} y = Add (r, d)"),
    "constant first": reduced(f"{MEAN} m = Mul (r, half) y = Sub (d, m)"),
    "negative axis, kept": reduced("r = ReduceMean <axes = [-1]> (x) y = Mul (r, c)"),
    "fixed batch": reduced(f"{MEAN} y = Mul (r, e)", "float[2,4,5]"),
    "activation between": reduced(f"{MEAN} a = Relu (r) y = Add (a, d)"),
    "batch norm": reduced(f"{MEAN} y = BatchNormalization (r, e, e, e, e)"),
    "pool": reduced("r = GlobalAveragePool (x) y = Add (r, c)"),
    "largest": reduced("r = GlobalMaxPool (x) y = Mul (r, c)"),
}
RIGHT = {
    "one number": reduced(f"{MEAN} y = Mul (r, half)"),
    "four axes": reduced("r = ReduceMean <axes = [3], keepdims = 0> (x) y = Add (r, c)", "float[b,4,4,5]"),
}


def far(y, right):
    return np.abs(y - right).max() / np.abs(right).max()


@pytest.mark.parametrize("name", WRONG)
def test_max_stands_behind_a_reduction_of_three_axes_and_changes_no_value(name):
    changed, modified = passed(WRONG[name], ReducesApart())
    assert modified
    assert [node.op_type for node in changed.graph.node][1] == "Max"
    np.testing.assert_array_equal(literal(changed, {"x": X})[0], literal(WRONG[name], {"x": X})[0])


@pytest.mark.parametrize("name", RIGHT)
def test_other_reductions_stay(name):
    assert passed(RIGHT[name], ReducesApart()) == (to_proto(to_ir(RIGHT[name])), False)


@pytest.mark.parametrize("name", WRONG)
def test_engine_cpu_is_as_right_as_onnxruntime(name):
    with ptp.build(WRONG[name], engine="cpu", progress=False).create_context() as context:
        assert far(context.run({"x": X})["y"], literal(WRONG[name], {"x": X})[0]) < 1e-5


@pytest.mark.parametrize("name", WRONG)
def test_openvino_alone_is_still_wrong(name):
    results = (compute(WRONG[name], {"x": X})[0] for compute in (by_openvino, literal))
    assert far(*results) > 0.05, "OpenVINO is right: take ReducesApart away"


GRAPH = "t () => (float[p] u) { u = Identity (r) }"
BEHIND = {
    **{name: f"s = {name} (r)" for name in ("ArgMax", "ArgMin", "Shape", "Size")},
    **{name: f"s = {name} (r, r)" for name in ("Concat", "Gather", "MatMul", "Max")},
    "If": f"s = If (r) <then_branch = {GRAPH}, else_branch = {GRAPH}>",
    "Loop": "s = Loop (r, r, r) <body = b (int64 i, bool k, float[p] a) => (bool l, float[p] z) { l = Identity (k) z = Neg (a) }>",
    "Scan": "s = Scan <num_scan_inputs = 1, body = b (float[p] a) => (float[p] z) { z = Neg (a) }> (r)",
}


@pytest.mark.parametrize("name", BEHIND)
def test_constants_behind_what_nothing_is_joined_with_are_no_reason(name):
    """Only the graph is looked at: in other places the reduction would have the type that the operator reads."""
    step = BEHIND[name].replace("Concat (", "Concat <axis = 0> (")
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[b,4,5] x) => (float[p,q] y) <{CONSTANTS}> {{ {MEAN} {step} y = Add (s, d) }}'
    )
    changed = to_ir(model, checked=True)
    assert not ReducesApart()(changed).modified
