"""What comes in as a model is sound, or refused with the place and the reason, before memory is taken."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from benchmarks.node_tests import load_cases
from pytrtplugins.errors import ModelError
from pytrtplugins.model.decompose import check_claims, known_to_be_sound
from pytrtplugins.validation import validated
from pytrtplugins.validation.limits import MAX_DEPTH
from tests.onnx_parts import (
    DIMS,
    IMAGE,
    RELU,
    add,
    body,
    branches,
    call,
    function,
    info,
    model,
    nested,
    node,
    parsed,
    shape,
)

RAW = TensorProto(name="w", data_type=1, dims=[4], raw_data=bytes(8))
LARGE = TensorProto(name="w", data_type=1, dims=[1000], raw_data=bytes(8))
BOTH = TensorProto(name="w", data_type=1, dims=[2], raw_data=bytes(8), float_data=[1, 2])
WRONG_FIELD = TensorProto(name="w", data_type=1, dims=[2], int32_data=[1, 2])
NEGATIVE = TensorProto(name="w", data_type=1, dims=[-2, -2], raw_data=bytes(16))
OVERFLOW = TensorProto(name="w", data_type=1, dims=[2**33, 2**33], raw_data=b"")
TWO_KINDS = helper.make_node("Softmax", ["x"], ["y"], "soft")
TWO_KINDS.attribute.add(name="axis", type=onnx.AttributeProto.FLOAT, f=1.0)
TWICE = helper.make_node("Softmax", ["x"], ["y"], "soft", axis=1)
TWICE.attribute.add().CopyFrom(TWICE.attribute[0])

CALL = call("F", "x", "y")


def text(nodes, **weights):
    return parsed(f"(float[1,3,8,8] x) => (float[] y) {{ {nodes} }}", **weights)


BROKEN = {
    "a convolution without weights": (model(node("Conv", "x", "y", "c")), r"'c' \(Conv\) has 1 input; .* has 2 to 3"),
    "an input left out": (text('[c] y = Conv ("", w)', w=[1]), r"'c' \(Conv\) leaves out its input 0, X"),
    "too many outputs": (model(node("Relu", "x", "y z")), r"has 2 outputs; Relu of opset 18 has 1"),
    "a cycle": (
        text("y = Relu (x) [p] p = Add (x, q) [q] q = Relu (p) [r] r = Relu (q)"),
        r"in a cycle: node 'p' \(Add\), node 'q' \(Relu\)",
    ),
    "a cycle of five": (
        text("[a] a = Add (x, e) b = Relu (a) c = Relu (b) d = Relu (c) [e] e = Relu (d) y = Relu (e)"),
        r"in a cycle: node 'a' \(Add\), node 'b' .*, node 'c' .*, node 'd' .*, node 'e' \(Relu\)\.\n",
    ),
    "a cycle of six": (
        text("[a] a = Add (x, f) b = Relu (a) c = Relu (b) d = Relu (c) e = Relu (d) f = Relu (e) y = Relu (f)"),
        r"in a cycle: node 'a' \(Add\), node 'b' .*, node 'c' .*, node 'd' .*, node 'e' \(Relu\) and 1 more\.\n",
    ),
    "a node that reads itself": (model(node("Add", "x y", "y")), r"in a cycle: node 'y' \(Add\)"),
    "a tensor that nobody writes": (model(node("Add", "x nowhere", "y")), "reads 'nowhere', which no node writes"),
    "an output that nobody writes": (model(node("Relu", "x", "z")), "output 'y' of the graph is written by no node"),
    "a tensor written twice": (model(node("Relu", "x", "y"), node("Abs", "x", "y", "again")), "'again'.*writes 'y'"),
    "a node that writes an input": (model(node("Relu", "x", "x"), RELU), "writes 'x'"),
    "two inputs of one name": (model(RELU, inputs=[info("x"), info("x")]), "two inputs have the name 'x'"),
    "two weights of one name": (model(RELU, weights=[shape("w", 1)] * 2), "two initializers have the name 'w'"),
    "an unknown attribute": (model(node("Relu", "x", "y", slope=1.0)), "has the attribute 'slope'; Relu .* has none"),
    "an attribute of another type": (model(TWO_KINDS), "attribute 'axis' is FLOAT; expected INT"),
    "an attribute given twice": (model(TWICE), "two attributes 'axis'"),
    "a missing attribute": (model(node("Cast", "x", "y")), "lacks the attribute 'to'"),
    "a body that reads another number": (
        text(
            "[l] y = Loop (n, c, x) <body = b (int64 i, bool k) => (bool l, bool z) { l = Not (k) z = Not (l) }>",
            n=[1],
            c=[1],
        ),
        "'l' .* has 3 inputs, and its body has 2; Loop of opset 18 gives its body 3",
    ),
    "strides of zero": (
        model(node("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[0, 1])),
        "attribute 'strides' has the value 0; expected 1 to 2147483647",
    ),
    "an element type of 0": (
        model(node("Multinomial", "x", "y", "m", dtype=0, sample_size=2)),
        r"'m' \(Multinomial\): attribute 'dtype' has the value 0, which is no element type",
    ),
    "an element type that onnx does not know": (
        model(node("Cast", "x", "y", to=99)),
        "attribute 'to' has the value 99, which is no element type",
    ),
    "a group of 0 of onnxruntime's own operator, which it divides by": (
        model(helper.make_node("FusedConv", ["x", "x"], ["y"], "f", domain="com.microsoft", group=0)),
        r"'f'.*attribute 'group' has the value 0; expected 1 to 2147483647",
    ),
    "no opset": (model(RELU), "opset_import"),
    "an opset of version 0": (model(RELU, opset=0), "version 0"),
    "an input without a type": (model(RELU, inputs=[onnx.ValueInfoProto(name="x")]), "input 'x' has no type"),
    "an unknown element type": (model(RELU, inputs=[info("x", DIMS, 99)]), "input 'x' has the element type 99"),
    "too few bytes": (add(RAW), r"initializer 'w': FLOAT of dims \(4\) needs 16 bytes, found 8"),
    "too few bytes of a large constant": (
        add(LARGE),
        r"initializer 'w': FLOAT of dims \(1000\) needs 4,000 bytes, found 8",
    ),
    "data in two fields": (add(BOTH), "FLOAT data in raw_data and float_data"),
    "data in another field": (add(WRONG_FIELD), "FLOAT data belong into float_data, found int32_data"),
    "negative dims": (add(NEGATIVE), r"a negative size in its dims \(-2, -2\)"),
    "dims whose product overflows": (add(OVERFLOW), "2\\^68 bytes|256 EiB"),
    "too many dims": (add(TensorProto(name="w", data_type=1, dims=[1] * 1000, raw_data=bytes(4))), "1,000 dims"),
    "a constant in an attribute": (
        model(node("Constant", "", "w", value=RAW), node("Add", "x w", "y")),
        r"node 'w' \(Constant\): attribute 'value': .* needs 16 bytes",
    ),
    "a branch with an input": (
        branches(helper.make_graph([node("Identity", "a", "b")], "body", [info("a")], [info("b", None)])),
        r"node 'y' \(If\): a branch has the input 'a'",
    ),
    "two ellipses": (text('y = Einsum <equation = "...i...->i"> (x)'), r"the term '...i...' of the equation has dots"),
    "four dots": (model(node("Einsum", "x", "y", equation="i->....i")), r"the term '....i' of the equation has dots"),
    "a constant in a body": (
        branches(body(node("Identity", "w", "b"), weights=[RAW])),
        r"in node 'y' \(If\): initializer 'w': .* needs 16 bytes",
    ),
    "a body that reads what nobody writes": (branches(body(node("Identity", "nowhere", "b"))), "reads 'nowhere'"),
    "a function that calls itself": (
        model(CALL, functions=[function("F", call("F", "a", "b"))]),
        "local::F calls itself",
    ),
    "a function without a name": (
        model(RELU, functions=[function("", node("Neg", "a", "b"))]),
        "a local function has no name",
    ),
    "two functions of one name": (
        model(CALL, functions=[function("F", node(name, "a", "b")) for name in ("Neg", "Abs")]),
        "two local functions are called local::F",
    ),
    "a huge tensor in a branch, of a function": (
        model(
            node("If", "when", "y", then_branch=body(call("F", "x", "b")), else_branch=body(node("Neg", "x", "b"))),
            inputs=[info("x"), info("when", [], TensorProto.BOOL)],
            functions=[
                function(
                    "F",
                    helper.make_node("Constant", [], ["n"], value_ints=[1 << 20] * 3),
                    helper.make_node("ConstantOfShape", ["n"], ["b"]),
                )
            ],
        ),
        "in node 'y' \\(If\\): node 'b' \\(F\\) makes 'b' of dims",
    ),
    "functions that call each other": (
        model(call("F", "x", "y"), functions=[function("F", call("G", "a", "b")), function("G", call("F", "a", "b"))]),
        "local::[FG] calls itself",
    ),
    "functions of 2^40 nodes": (
        model(
            call("F39", "x", "y"),
            functions=[function("F0", node("Relu", "a", "b"))]
            + [function(f"F{i}", call(f"F{i - 1}", "a", "c"), call(f"F{i - 1}", "c", "b")) for i in range(1, 40)],
        ),
        "more than 1,000,000 nodes where its local functions are written out",
    ),
    "graphs within graphs": (nested(MAX_DEPTH), f"more than {MAX_DEPTH} deep"),
}
del BROKEN["no opset"][0].opset_import[:]
NOT_TEXT = onnx.ModelProto.FromString(model(node("Relu", "x", "y")).SerializeToString().replace(b"Relu", b"Re\xffu"))
BROKEN["a name that is not text"] = (NOT_TEXT, "op_type of a NodeProto is not text")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_refused_by_every_engine_with_the_place_and_the_reason(name):
    broken, reason = BROKEN[name]
    for engine in ("cpu", "onnxruntime", "reference", "null"):
        with pytest.raises(ModelError, match=reason) as caught:
            ptp.build(broken, engine=engine)
        assert "\nDo: " in str(caught.value)
        for fact in ("node", "tensor", "function", "attribute"):
            assert str(caught.value.facts.get(fact, "")) in str(caught.value), fact
    if "function" in caught.value.facts:
        assert caught.value.facts["function"] in ("F", "G", "")


def test_the_error_names_the_file(tmp_path):
    onnx.save(BROKEN["a cycle"][0], tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"model\.onnx: nodes wait") as caught:
        ptp.load_onnx(tmp_path / "model.onnx")
    assert caught.value.path == tmp_path / "model.onnx"
    assert caught.value.node == "p"


def test_a_sound_model_is_given_back_itself():
    sound = model(RELU)
    assert validated(sound) is sound


def test_a_model_that_passes_made_of_a_sound_one_is_checked_without_inference():
    sound, cyclic = model(RELU), model(node("Relu", "y", "y"))
    size = helper.make_tensor("n", TensorProto.INT64, [1], [1 << 45])  # inference finds that y is too large
    derived = model(node("Expand", "x n", "y"), inputs=[info("x", [1])], weights=[size])
    with pytest.raises(ModelError):
        check_claims(derived)
    with known_to_be_sound(sound, derived, cyclic):
        assert check_claims(sound) is sound
        assert check_claims(derived) is derived
        with pytest.raises(ModelError):
            check_claims(cyclic)


def test_sizes_of_inputs_that_are_no_sizes_are_left_to_engines():
    sound = model(
        helper.make_node("Reshape", ["x", "n"], ["y"]),
        inputs=[info("x", [-1, 4])],
        weights=[helper.make_tensor("n", TensorProto.INT64, [1], [8])],
        outputs=(),
    )
    sound.graph.output.append(info("y", [8]))
    check_claims(sound)


def test_graphs_within_graphs_may_be_as_deep_as_files_can_hold():
    validated(nested(MAX_DEPTH - 3))


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_shuffled_nodes_run_with_the_numbers_of_the_model_in_order(engine):
    chain = [node("Relu", "x", "a"), node("Add", "a x", "b"), node("Mul", "b a", "c"), node("Abs", "c", "y")]
    shuffled = model(*(chain[index] for index in (3, 1, 2, 0)))
    before = shuffled.SerializeToString()
    with ptp.build(shuffled, engine=engine).create_context() as context:
        found = context.run({"x": IMAGE})["y"]
    relu = np.maximum(IMAGE, 0)
    np.testing.assert_allclose(found, np.abs((relu + IMAGE) * relu), rtol=1e-6)
    assert shuffled.SerializeToString() == before


def test_shuffled_nodes_of_bodies_are_sorted():
    found = validated(branches(body(node("Relu", "t", "b"), node("Abs", "x", "t"))))
    (then,) = (item.g for item in found.graph.node[0].attribute if item.name == "then_branch")
    assert [item.op_type for item in then.node] == ["Abs", "Relu"]


def test_every_model_of_onnxs_own_node_tests_comes_in():
    cases = load_cases()
    assert len(cases) > 1000
    for case in cases:
        check_claims(case.model)


def test_what_onnxs_checker_says_of_arity_and_attributes_is_said_here_too():
    names = ["a convolution without weights", "too many outputs", "an unknown attribute", "a missing attribute", "a cycle",
             "an attribute of another type", "a tensor that nobody writes", "a tensor written twice"]  # fmt: skip
    for name in names:
        with pytest.raises(onnx.checker.ValidationError):
            onnx.checker.check_model(BROKEN[name][0])


def test_the_door_needs_no_engine_and_no_weights_of_its_own():
    code = (
        "import sys, onnx; from pytrtplugins.validation import validated; validated(onnx.ModelProto.FromString(sys.stdin.buffer.read()));"
        "print([name for name in ('onnxruntime', 'openvino', 'onnx_ir') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=model(RELU).SerializeToString(), capture_output=True, check=True
    )
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"Relu", "op_type of a NodeProto"),
        (b"local", "domain of a OperatorSetIdProto"),
        (b"middle", "put of a NodeProto"),
    ],
)
def test_texts_that_are_not_utf8_are_refused_with_their_place(text, place):
    """Such as an operator's name: protobuf gives bytes for it, at which ONNX's own functions end with TypeError."""
    data = model(node("Relu", "x", "middle"), node("Neg", "middle", "y")).SerializeToString()
    assert validated(onnx.ModelProto.FromString(data)).graph.node
    broken = onnx.ModelProto.FromString(data.replace(text, b"\xff" + text[1:]))
    with pytest.raises(ModelError, match=f"{place} is not text: .* is not UTF-8"):
        validated(broken)
