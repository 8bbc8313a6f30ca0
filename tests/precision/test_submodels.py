"""Layers in groups that fit into memory together."""

import inspect
from types import SimpleNamespace

import onnx
import pytest

from pytrtplugins.precision import compare, search
from pytrtplugins.precision.submodels import Layer, find_layers, in_groups, layer_alone, sources


@pytest.mark.parametrize(
    ("sizes", "limit", "groups"),
    [
        ([4, 6], 10, [[4, 6]]),
        ([4, 7], 10, [[4], [7]]),
        ([20, 1, 9, 1], 10, [[20], [1, 9], [1]]),
        ([], 10, []),
    ],
)
def test_groups_are_as_large_as_the_limit_lets_them(sizes, limit, groups):
    layers = [SimpleNamespace(bytes=size) for size in sizes]
    assert [[layer.bytes for layer in group] for group in in_groups(layers, limit)] == groups


@pytest.mark.parametrize("function", [search, compare])
def test_a_group_has_256_mib_by_default(function):
    assert inspect.signature(function).parameters["limit_bytes"].default == 268_435_456


@pytest.mark.parametrize(("names", "alone"), [("y z", True), ("y w", False), ("w z", False), ("w v", False)])
def test_a_layer_alone_has_all_of_its_outputs_or_is_none(names, alone):
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]> net (float[4] x) => (float[2] y, float[2] z)
        { y, z = Split <num_outputs = 2> (x) }"""
    )
    part = layer_alone(model, Layer(model.graph.node[0], ("x",), tuple(names.split()), 0), {"x", "y", "z"})
    assert (part is not None) == alone
    if alone:
        assert ([i.name for i in part.graph.input], [o.name for o in part.graph.output]) == (["x"], ["y", "z"])


def test_a_layer_reads_and_gives_the_bytes_of_its_tensors_of_which_free_dims_count_once():
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]> net (float[N,4] x, float16[3] h) => (float[N,4] y, float16[3] t)
        <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) t = Transpose(h) s = Shape(y) }"""
    )
    layers = find_layers(model)
    assert [(layer.inputs, layer.outputs, layer.bytes, layer.copies) for layer in layers] == [
        (("x",), ("y",), 2 * 4 * 4, False),
        (("h",), ("t",), 2 * 3 * 2, True),
    ]


@pytest.mark.parametrize(
    ("nodes", "found"),
    [("t = Transpose(a) y = Reshape(t, n)", "a"), ("y = Concat <axis = 0> (a, b)", "ab"), ("y = Concat <axis = 0> (a, w)", "a"),
     ("y = Neg(a)", "y"), ("y = Identity(w)", "")],
)  # fmt: skip
def test_values_that_are_copied_come_from_the_tensors_that_were_computed(nodes, found):
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18]> net (float[4] a, float[4] b, int64[1] i) => (float[k] y)
        <float[4] w = {{1, 2, 3, 4}}, int64[1] n = {{-1}}> {{ {nodes} }}"""
    )
    assert sorted(sources(model, "y")) == list(found)


def test_a_layer_behind_what_copies_an_input_begins_at_the_copy():
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]> net (float[4] x) => (float[4] y) { t = Transpose(x) y = Neg(t) }"""
    )
    part = layer_alone(model, Layer(model.graph.node[1], ("t",), ("y",), 0), {"x", "t", "y"})
    assert [node.op_type for node in part.graph.node] == ["Neg"]
