"""Branches and bodies of loops are converted with the graph around them: onnxruntime's values before and after."""

import numpy as np
import onnx
import pytest
from onnx import parser

from pytrtplugins.errors import ModelError
from pytrtplugins.layers import Reorg
from pytrtplugins.passes import normalize
from pytrtplugins.passes.normalize import with_opset
from pytrtplugins.passes.opsets import _all_reads, convert_or_keep
from tests.engines.operators import literal

X = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)


def parsed(text, opset):
    return parser.parse_model(f'<ir_version: 4, opset_import: ["": {opset}]> g {text}')


def branches(then, other, opset, around="", weights=""):
    """An If with two branches of nodes; ``around`` computes what they read."""
    return parsed(
        f"(float[1,2,3,4] x, bool c) => (float[a,b,d,e] y) {weights} {{ {around} y = If (c) <"
        f"then_branch = t () => (float[a,b,d,e] u) {{ {then} }},"
        f"else_branch = f () => (float[a,b,d,e] v) {{ {other} }}> }}",
        opset,
    )


NETWORKS = {
    "squeeze and unsqueeze": branches(
        "s = Squeeze <axes = [0]> (x) r = Relu (s) u = Unsqueeze <axes = [0]> (r)",
        "s = ReduceSum <axes = [1], keepdims = 1> (x) v = Abs (s)",
        11,
    ),
    "a tensor around it": branches(
        "u = Softmax <axis = 2> (h)", "s = Squeeze <axes = [0]> (h) v = Unsqueeze <axes = [0]> (s)", 11, "h = Neg (x)"
    ),
    "upsample, scales around it": branches(
        'u = Upsample <mode = "nearest"> (x, scales)',
        'v = Upsample <mode = "linear"> (x, scales)',
        9,
        weights="<float[4] scales = {1, 1, 2, 2}>",
    ),
    "pads and clips": branches(
        'p = Pad <mode = "constant", pads = [0, 0, 1, 1, 0, 0, 1, 1], value = 2.0> (x) u = Clip <min = -0.5, max = 0.5> (p)',
        'v = Pad <mode = "reflect", pads = [0, 0, 1, 1, 0, 0, 1, 1], value = 1.0> (x)',
        10,
    ),
    "hardmax": branches("u = Hardmax <axis = 1> (x)", "v = LogSoftmax <axis = 1> (x)", 11),
    "a node that is converted beside it": branches(
        "s = Squeeze <axes = [0]> (h) u = Unsqueeze <axes = [0]> (s)",
        "v = Relu (h)",
        11,
        "q = Squeeze <axes = [0]> (x) h = Unsqueeze <axes = [0]> (q)",
    ),
    "a branch in a branch": branches(
        "u = If (c) <then_branch = t2 () => (float[a,b,d,e] k) { k = ReduceSum <axes = [1], keepdims = 1> (x) },"
        "else_branch = f2 () => (float[a,b,d,e] l) { l = Neg (x) }>",
        "v = Relu (x)",
        11,
    ),
    "a loop": parsed(
        "(float[1,2,3,4] x, bool c) => (float[1,2,3,4] y) <int64 n = {3}> {"
        " y = Loop (n, c, x) <body = b (int64 i, bool k, float[1,2,3,4] a) => (bool l, float[1,2,3,4] z)"
        " { l = Identity (k) s = ReduceSum <axes = [1], keepdims = 1> (a) z = Sub (x, s) }> }",
        11,
    ),
    "a scan": parsed(
        "(float[1,2,3,4] x, bool c) => (float[2,3,4] s, float[1,2,3,4] y) {"
        " z = Squeeze <axes = [0]> (x) s, y = Scan <num_scan_inputs = 1, body = b (float[2,3,4] a, float[2,3,4] i)"
        " => (float[2,3,4] o, float[2,3,4] p) { o = Add (a, i) m = ReduceSum <axes = [0], keepdims = 1> (o) p = Mul (m, i) }> (z, x) }",
        11,
    ),
}


def used(graph):
    """Operators of a graph and of those inside it."""
    for node in graph.node:
        yield node
        for item in node.attribute:
            if item.HasField("g"):
                yield from used(item.g)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("name", NETWORKS)
def test_branches_and_bodies_compute_what_they_did(name, opset):
    old = NETWORKS[name]
    before = old.SerializeToString(deterministic=True)
    new = with_opset(normalize(old), opset)
    assert new.opset_import[0].version == opset
    assert all(item.domain == "" for item in (*new.opset_import, *used(new.graph)))
    onnx.checker.check_model(new, full_check=True)
    for c in (True, False):
        feeds = {"x": X, "c": np.array(c)}
        for found, right in zip(literal(new, feeds), literal(old, feeds), strict=True):
            np.testing.assert_allclose(found, right, 1e-5, 1e-6)
    assert old.SerializeToString(deterministic=True) == before


def test_new_names_are_taken_by_no_graph_around():
    model = NETWORKS["a node that is converted beside it"]
    newer_model = normalize(model)
    names = [name for node in used(newer_model.graph) for name in node.output]
    assert len(names) == len(set(names))
    assert len(names) > len([name for node in used(model.graph) for name in node.output])


def test_nodes_that_a_conversion_adds_are_named_after_the_node_that_they_serve():
    model = parsed("(float[2,3,4] x) => (float[2,3,4] y) { s = Softmax <axis = 1> (x) y = Clip <min = 0.5> (s) }", 10)
    model.graph.node[0].name = "soft"
    assert [(node.name, node.op_type) for node in with_opset(model, 13).graph.node] == [
        *(("soft/Shape", "Shape"), ("soft/Flatten", "Flatten"), ("soft", "Softmax"), ("", "Reshape")),
        *(("y/Constant", "Constant"), ("", "Clip")),
    ]


UNCONVERTIBLE = {
    "Scan": parsed(
        "(float[1,2,3,4] x) => (float[1,3,4] s, float[1,2,3,4] y) {"
        " s, y = Scan <num_scan_inputs = 1, body = b (float[3,4] a, float[3,4] i) => (float[3,4] o, float[3,4] p)"
        " { o = Add (a, i) p = Identity (o) }> (, z, x) }".replace("z, x", "zero, x"),
        8,
    ),
    "If": branches("u = Upsample (x)", "v = Add <broadcast = 1, axis = 1> (x, x)", 9),
}


@pytest.mark.parametrize("name", UNCONVERTIBLE)
def test_what_cannot_be_converted_stays_as_it_was(name, caplog):
    model = UNCONVERTIBLE[name]
    before = model.SerializeToString(deterministic=True)
    assert convert_or_keep(model) is model
    assert model.SerializeToString(deterministic=True) == before
    assert f"({'Upsample' if name == 'If' else name}) cannot be converted to opset 13" in caplog.text


def test_what_cannot_be_converted_is_refused_where_a_newer_opset_is_needed():
    """Plugins are of opset 13 and newer, and so are forms that a caller needs."""
    model = parsed("(float[1,2,3,4] x) => (float[a,b,d,e] y) { u = Upsample (x) y = Neg (u) }", 9)
    assert convert_or_keep(model) is model
    model.graph.node.append(Reorg(stride=1).as_node(["y"], ["z"], "ours"))
    model.opset_import.add(domain=model.graph.node[-1].domain, version=1)
    with pytest.raises(
        ModelError, match=r"\(Upsample\) cannot be converted to opset 13: [\s\S]*\nDo: export the model with opset 13"
    ):
        convert_or_keep(model)


def test_a_graph_that_is_refused_half_way_stays_as_it_was(caplog):
    text = (
        "(float[2,3] x, float[3] b) => (float[2,3] y) {"
        " s = Add <broadcast = 1, axis = 1> (x, b) t = PRelu (s, w) y = Upsample (t) }"
    )
    model = parsed(text, 6)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "w"))
    before = model.SerializeToString(deterministic=True)
    assert convert_or_keep(model) is model
    assert model.SerializeToString(deterministic=True) == before
    assert "(Upsample) cannot be converted" in caplog.text


def test_weights_of_ir_3_that_are_no_inputs_are_converted_too():
    text = "(float[1,2,3,4] x) => (float[1,2,3,4] y) { s = Squeeze <axes = [0]> (x) m = Mul (s, w) y = Unsqueeze <axes = [0]> (m) }"
    model = parsed(text, 11)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([2]), "w"))
    model.ir_version = 3
    newer_model = convert_or_keep(model)
    assert newer_model.opset_import[0].version == 13
    np.testing.assert_array_equal(literal(newer_model, {"x": X})[0], 2 * X)


@pytest.mark.parametrize(
    ("nodes", "opset", "newer", "calls"),
    [
        ("c = Conv (x, w) y = Sigmoid (c)", 13, 21, 0),
        ("c = Conv (x, w) y = Sigmoid (c)", 11, 13, 1),
        ("c = Conv (x, w) y = Relu (c)", 13, 14, 1),
        ("c = Conv (x, w) y = Relu (c)", 14, 21, 0),
    ],
)
def test_where_every_operator_stays_onnxs_converter_is_not_asked(monkeypatch, nodes, opset, newer, calls):
    model = parsed(f"(float[1,2,3,4] x) => (float[a,b,d,e] y) <float[1,2,1,1] w = {{1, -2}}> {{ {nodes} }}", opset)
    converters, convert = [], onnx.version_converter.convert_version

    def counting(*arguments):
        converters.append(arguments)
        return convert(*arguments)

    monkeypatch.setattr(onnx.version_converter, "convert_version", counting)
    newer_model = convert_or_keep(model, newer)
    assert len(converters) == calls
    assert newer_model.opset_import == convert(model, newer).opset_import
    assert newer_model.graph.node == model.graph.node
    assert model.opset_import[0].version == opset
    np.testing.assert_array_equal(literal(newer_model, {"x": X})[0], literal(model, {"x": X})[0])


def test_functions_stay_where_every_operator_does():
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 14, "acme": 1]> g (float[2] x) => (float[2] y) { r = Relu (x) y = acme.F (r) }
        <domain: "acme", opset_import: ["": 14]> F (a) => (b) { b = Neg (a) }"""
    )
    newer_model = convert_or_keep(model, 18)
    assert {(item.domain, item.version) for item in newer_model.opset_import} == {("", 18), ("acme", 1)}
    assert newer_model.functions == model.functions
    assert newer_model.graph.node == model.graph.node


def test_a_node_reads_its_inputs_then_what_its_branches_take_from_around_them():
    (node,) = branches("u = Add (x, c)", "w = Mul (h, k) v = Add (w, x)", 11, "h = Neg (x) k = Abs (x)").graph.node[-1:]
    assert _all_reads(node) == ["c", "h", "k", "x"]
    plain = onnx.helper.make_node("Add", ["b", "a"], ["y"])
    assert _all_reads(plain) == ["b", "a"]
