"""Dims that ONNX's own inference gives."""

import onnx
import pytest

from benchmarks.node_tests import load_cases
from pytrtplugins.model.proto import info_dims
from pytrtplugins.validation import inference
from pytrtplugins.validation.inference import _can_propagate_values, _may_have_values, infer_unchanged
from tests.onnx_parts import RELU, body, branches, info, node
from tests.onnx_parts import model as model_of


@pytest.mark.parametrize(
    "nodes",
    [
        "s = Shape (x)  t = Reshape (x, s)",
        "s = Shape (x)  t = Expand (x, s)",
        "s = Shape (x)  r = Slice (s, one, two)  p = Concat <axis = 0> (r, one)  t = Reshape (w, p)",
    ],
)
def test_dims_that_are_computed_from_dims_are_known(nodes):
    text = f"(float[2,3] x, float[3] w) => (float[a,b] y) <int64[1] one = {{1}}, int64[1] two = {{2}}> {{ {nodes}  y = Relu (t) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    dims = {info.name: info_dims(info) for info in infer_unchanged(model).graph.value_info}
    assert dims["t"] == ((3, 1) if "Concat" in nodes else (2, 3))


def test_values_tell_nothing_of_the_models_in_which_none_are_looked_for():
    """Of ONNX's own tests of operators, whose dims are those that its inference finds with values too."""
    counts = {True: 0, False: 0}
    for model in (case.model for case in load_cases()):
        try:
            plain = onnx.shape_inference.infer_shapes(model)
        except onnx.shape_inference.InferenceError:
            continue
        counts[_may_have_values(plain)] += 1
        if not _may_have_values(plain):
            assert onnx.shape_inference.infer_shapes(plain, data_prop=True) == plain, model.graph.name
    assert counts[False] > counts[True] > 100


@pytest.mark.parametrize("place", ["input", "output", "value_info", "body", "inner body", "function"])
def test_values_are_followed_unless_a_row_is_long_or_may_be(place):
    """A long row among short ones is enough, wherever it is; a table is no row."""

    def network(dims, nodes=(RELU,)):
        rows = [info("short", [3]), info("row", dims), info("table", [1, 1 << 20])]
        if place == "function":
            function = onnx.helper.make_function("local", "F", ["x"], ["y"], nodes, [], value_info=rows)
            return model_of(RELU, functions=[function])
        if "body" in place:
            inner = body(*nodes)
            inner.value_info.extend(rows)
            other = body(node("If", "when", "b", then_branch=inner, else_branch=body(RELU, output="y")))
            return branches(other if place == "inner body" else inner)
        found = model_of(RELU)
        getattr(found.graph, place).extend(rows)
        return found

    assert [_can_propagate_values(network([count])) for count in (1 << 16, (1 << 16) + 1)] == [True, False]
    if place in ("body", "inner body", "function"):
        makers = [node("Relu", "x", "a"), node("Tile", "x r", "y")]
        assert not _can_propagate_values(network([3], makers))


@pytest.mark.parametrize(
    ("op_type", "size", "calls"), [("Relu", 8, [False]), ("Shape", 8, [False, True]), ("Shape", 1 << 20, [False])]
)
def test_values_are_followed_after_a_first_look_that_finds_them_short(monkeypatch, op_type, size, calls):
    seen = []
    monkeypatch.setattr(inference, "_infer", lambda model, follow_values: seen.append(follow_values) or model)
    network = model_of(node(op_type, "x", "y"))
    network.graph.value_info.append(info("row", [size]))
    infer_unchanged(network)
    assert seen == calls
