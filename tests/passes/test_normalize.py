"""One way for what exporters say in many ways; what the model computes stays."""

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from pytrtplugins.errors import ModelError
from pytrtplugins.layers import Reorg
from pytrtplugins.passes import normalize
from pytrtplugins.passes.normalize import normalize_if_needed, with_opset
from pytrtplugins.passes.prepare import prepare_loaded
from pytrtplugins.plugin.onnx_node import as_node
from tests.engines.exported_models import MODELS
from tests.engines.model_parts import F, body, constant, info, model, node, values
from tests.engines.operators import literal
from tests.onnx_parts import parsed
from tests.passes.nets import tiny_yolo


def opset(found):
    return next(item.version for item in found.opset_import if item.domain == "")


def test_functions_are_written_out_in_branches_too():
    for name in ("functions_of_functions", "functions_of_one_name", "function_in_a_branch"):
        network, _ = MODELS[name]()
        found = normalize(network)
        assert not found.functions
        assert network.functions
        onnx.checker.check_model(found, full_check=True)


def called(ends, nodes, *functions, opset=18, ir=8):
    """A model whose nodes call functions: domain, opset, text."""
    domains = "".join(f', "{domain}": 1' for domain, _, _ in functions)
    text = f'<ir_version: {ir}, opset_import: ["": {opset}{domains}]> g {ends} {{ {nodes} }}'
    return onnx.parser.parse_model(
        text + "".join(f'<domain: "{domain}", opset_import: ["": {own}]> {body}' for domain, own, body in functions)
    )


@pytest.mark.parametrize("domain", ["a", "pkg", "z"])
def test_functions_of_plugins_stay(domain):
    network = called(
        "(float[1,4,4,4] x) => (float[1,16,2,2] y)",
        f"h = darknet.Reorg (x) y = {domain}.Act (h)",
        ("darknet", 18, "Reorg <stride> (x) => (y) { y = SpaceToDepth <blocksize = 2> (x) }"),
        (domain, 18, "Act (x) => (y) { y = Relu (x) }"),
    )
    network.graph.node[0].CopyFrom(as_node(Reorg(stride=2), ["x"], ["h"]))
    found = normalize(network)
    assert [item.name for item in found.functions] == ["Reorg"]
    assert [item.op_type for item in found.graph.node] == ["Reorg", "Relu"]


@pytest.mark.parametrize("used", [True, False])
def test_another_function_of_a_plugins_domain_is_written_out(used):
    network = called(
        "(float[1,4,4,4] x) => (float[1,16,2,2] y)",
        f"h = darknet.Reorg (x) y = {'darknet.Act' if used else 'Relu'} (h)",
        ("darknet", 18, "Reorg <stride> (x) => (y) { y = SpaceToDepth <blocksize = 2> (x) }"),
    )
    act = called("(float[1] x) => (float[1] y)", "y = Relu (x)", ("darknet", 18, "Act (x) => (y) { y = Relu (x) }"))
    network.functions.extend(act.functions)
    network.graph.node[0].CopyFrom(as_node(Reorg(stride=2), ["x"], ["h"]))
    found = normalize(network)
    assert [item.name for item in found.functions] == ["Reorg"]
    assert [item.op_type for item in found.graph.node] == ["Reorg", "Relu"]


def test_large_weights_come_through_functions_and_conversions():
    weight = values(40, 40)
    ends = "(float[1,40] x) => (float[1,40] y)"
    network = called(
        ends, "h = MatMul (x, w) y = pkg.Act (h)", ("pkg", 11, "Act (x) => (y) { y = Relu (x) }"), opset=11, ir=6
    )
    network.graph.initializer.append(constant("w", weight))
    found = normalize(network)
    assert opset(found) == 13
    assert [item.name for item in found.graph.input] == ["x"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(found.graph.initializer[0]), weight)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_is_copied_only_where_something_is_to_be_changed(name):
    network, _ = MODELS[name]()
    before = network.SerializeToString(deterministic=True)
    whole = normalize(network)
    assert whole is not network
    found = normalize_if_needed(network)
    assert found.SerializeToString(deterministic=True) == whole.SerializeToString(deterministic=True)
    unchanged = whole.SerializeToString(deterministic=True) == before
    assert (found is network) == unchanged
    assert network.SerializeToString(deterministic=True) == before


def test_what_is_not_copied_is_not_changed_either():
    network = tiny_yolo()
    before = network.SerializeToString(deterministic=True)
    assert normalize_if_needed(network) is network
    prepared = prepare_loaded(network)
    prepared.graph.initializer[0].raw_data = b""
    assert network.SerializeToString(deterministic=True) == before


def test_weights_are_no_inputs():
    found = normalize(MODELS["weights_as_inputs"]()[0])
    assert [item.name for item in found.graph.input] == ["x"]
    assert found.ir_version >= 4


@pytest.mark.parametrize("name", ["minus_one_dims", "dims_called_question_mark"])
def test_free_dims_have_neither_value_nor_name(name):
    graph = normalize(MODELS[name]()[0]).graph
    dims = [dim for item in (*graph.input, *graph.output, *graph.value_info) for dim in item.type.tensor_type.shape.dim]
    assert all(dim.dim_value > 0 or not dim.WhichOneof("value") for dim in dims)
    assert any(not dim.WhichOneof("value") for dim in dims)


@pytest.mark.parametrize("name", ["old_resize", "old_axes", "old_normalization", "weights_as_inputs"])
def test_old_opsets_are_converted_with_a_note(name, caplog):
    network, _ = MODELS[name]()
    with caplog.at_level(logging.INFO):
        found = normalize(network)
    assert opset(found) == 13
    onnx.checker.check_model(found, full_check=True)
    assert f"the model has opset {opset(network)}; it was converted to opset 13" in caplog.text


def test_what_cannot_be_converted_stays_with_a_warning_that_names_the_node(caplog):
    broken = parsed("(float[1,1,2,2] x) => (float[] y) { h = Relu (x) [Upsample_y] y = Upsample (h) }", 9, 4)
    assert opset(normalize(broken)) == 9
    assert "node 'Upsample_y' (Upsample) cannot be converted" in caplog.text


def test_plugins_in_what_cannot_be_converted_are_refused():
    network, _ = MODELS["old_branches"]()
    branch = network.graph.node[1].attribute[0].g
    branch.node.append(as_node(Reorg(stride=1), ["h"], ["unused"]))
    network.opset_import.add(domain="darknet", version=1)
    assert opset(normalize(network)) == 13
    branch.node.append(node("Upsample", ["h"], ["broken"]))
    with pytest.raises(
        ModelError,
        match=r"(?s)node 'Upsample_broken' \(Upsample\) cannot be converted.*Do: export the model with opset 13",
    ):
        normalize(network)


def test_an_opset_of_the_future_is_refused():
    network = model([node("Relu", ["x"], ["y"])], [info("x", F, [1])], [info("y", F, [1])], opset=999)
    with pytest.raises(ModelError, match=r"(?s)the model has opset 999; onnx .* knows opsets up to .*Do: "):
        normalize(network)


def test_a_function_that_cannot_be_written_out_is_named():
    ends, function = "(float[1] x) => (float[1] y)", "Endless (x) => (y) { y = pkg.Endless (x) }"
    network = called(ends, "y = pkg.Endless (x)", ("pkg", 18, function))
    network.functions[0].opset_import[0].CopyFrom(helper.make_opsetid("pkg", 1))
    with pytest.raises(ModelError, match="Endless"):
        normalize(network)


def test_the_model_given_is_not_changed():
    for make in MODELS.values():
        network, _ = make()
        before = network.SerializeToString(deterministic=True)
        normalize(network)
        assert network.SerializeToString(deterministic=True) == before


def test_dims_in_bodies_are_freed_too():
    inner = body([node("Relu", ["x"], ["b"])], [info("b", F, [-1])])
    other = body([node("Neg", ["x"], ["c"])], [info("c", F, [-1])])
    nodes = [node("If", ["f"], ["y"], then_branch=inner, else_branch=other)]
    network = model(nodes, [info("x", F, [-1]), info("f", 9, [])], [info("y", F, [-1])])
    branch = normalize(network).graph.node[0].attribute[0].g
    assert not branch.output[0].type.tensor_type.shape.dim[0].WhichOneof("value")


def test_at_most_300_characters_of_a_converters_reason_are_told(monkeypatch, caplog):
    def refuse(*_):
        raise RuntimeError(" ".join(["x" * 150, "\n", "y" * 500]))

    monkeypatch.setattr(onnx.version_converter, "convert_version", refuse)
    network = model([node("Relu", ["x"], ["y"])], [info("x", F, [1])], [info("y", F, [1])], opset=7)
    with caplog.at_level(logging.WARNING):
        found = normalize(network)
    assert opset(found) == 7
    (record,) = caplog.records
    text = record.getMessage()
    assert "the model has opset 7, and node 'Relu_y' (Relu) cannot be converted to opset" in text
    assert "x" * 150 + " " + "y" * 149 + "; it stays as it is" in text


@pytest.mark.parametrize("place", ["input", "output"])
def test_inputs_and_outputs_that_are_no_tensors_of_numbers_are_refused(place):
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F, [2]))
    network = model([node("Identity", ["x"], ["y"])], [info("x", F, [2])], [info("y", F, [2])])
    getattr(network.graph, place)[0].type.CopyFrom(sequence)
    with pytest.raises(ModelError, match=f"tensor '{'x' if place == 'input' else 'y'}' is of the kind sequence"):
        normalize(network)


def test_an_output_without_a_type_is_left_to_later_passes():
    network = model([node("Identity", ["x"], ["y"])], [info("x", F, [2])], [info("y", F, [2])])
    network.graph.output[0].ClearField("type")
    assert not normalize(network).graph.output[0].HasField("type")


def test_a_node_without_a_name_is_called_by_its_first_output(caplog):
    broken = helper.make_node("Upsample", ["x"], ["first"])
    assert opset(normalize(model([broken], [info("x", F, [1])], [info("first", F, [1])], opset=9, ir=6))) == 9
    assert "node 'first' (Upsample) cannot be converted" in caplog.text


def plain(opset=18, ir=8, dims=(2, 3), nodes=None, domain="", constants=(), extra_inputs=()):
    network = model(
        nodes or [node("Relu", ["x"], ["y"])],
        [info("x", F, dims), *extra_inputs],
        [info("y", F, dims)],
        constants,
        opset=opset,
        ir=ir,
    )
    network.opset_import[0].domain = domain
    return network


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
@pytest.mark.parametrize(("number", "expected"), [(12, 13), (13, 13), (14, 14), (1, 13)])
def test_only_opsets_before_13_are_converted(domain, number, expected):
    nodes = [node("Neg", ["x"], ["y"])] if number > 5 else [node("Identity", ["x"], ["y"])]
    found = normalize(plain(number, 8, nodes=nodes, domain=domain))
    assert {item.domain or "ai.onnx": item.version for item in found.opset_import} == {"ai.onnx": expected}


def test_a_model_without_onnxs_operators_has_no_opset_to_convert(caplog):
    network = plain(1, nodes=[helper.make_node("Act", ["x"], ["y"], domain="pkg")], domain="pkg")
    assert normalize(network) == network
    assert not caplog.records


def test_the_newest_opset_is_taken_and_the_next_one_is_refused_with_both_numbers():
    newest = onnx.defs.onnx_opset_version()
    assert opset(normalize(plain(newest))) == newest
    with pytest.raises(ModelError) as caught:
        normalize(plain(newest + 1))
    assert (caught.value.found, caught.value.expected) == (newest + 1, newest)


@pytest.mark.parametrize(("weights", "ir", "expected"), [(True, 3, 4), (True, 8, 8), (False, 3, 3), (False, 8, 8)])
def test_the_ir_version_changes_where_weights_stop_being_inputs(weights, ir, expected):
    more = [info("w", F, [3])] if weights else []
    nodes = [node("Add", ["x", "w"], ["y"])] if weights else None
    found = normalize(plain(13, ir, nodes=nodes, constants={"w": values(3)} if weights else (), extra_inputs=more))
    assert ([item.name for item in found.graph.input], found.ir_version) == (["x"], expected)


@pytest.mark.parametrize(
    ("dim", "expected"),
    [(-1, ""), (-2, ""), (0, 0), (1, 1), (7, 7), ("N", "N"), ("?", ""), ("-1", ""), ("batch", "batch")],
)
def test_dims_that_say_something_stay(dim, expected):
    (found, other) = normalize(plain(dims=(dim, 3))).graph.input[0].type.tensor_type.shape.dim
    kind = found.WhichOneof("value")
    assert (getattr(found, kind) if kind else "") == expected
    assert other.dim_value == 3


def unconvertible(broken, name, x="x"):
    """An Upsample without scales, which ONNX's converter does not take, among other nodes."""
    nodes = []
    for number in range(3):
        op = "Upsample" if number == broken else ("Mul", "Relu", "Add")[number]
        inputs = {"Mul": [x, x], "Add": [x, "w"]}.get(op, [x])
        nodes.append(helper.make_node(op, inputs, [f"t{number}"], name and f"{name}{number}"))
        x = f"t{number}"
    return model(
        nodes, [info("x", F, [1, 1, 2, 2])], [info(x, F, None)], {"w": values(1, 1, 1, 1).ravel()}, opset=9, ir=4
    )


@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize("name", ["", "node"])
def test_the_node_that_cannot_be_converted_is_found_wherever_it_stands(broken, name, caplog):
    network = unconvertible(broken, name)
    assert normalize(network).graph.node == network.graph.node
    (record,) = caplog.records
    called = f"node{broken}" if name else f"t{broken}"
    assert (
        f"the model has opset 9, and node {called!r} (Upsample) cannot be converted to opset 13: "
        in record.getMessage()
    )
    reason = record.getMessage().partition("opset 13: ")[2].removesuffix("; it stays as it is")
    assert 0 < len(reason) <= 300
    assert reason == " ".join(reason.split())


def test_functions_of_an_older_opset_are_converted_where_they_are_written_out():
    function = "Act (x) => (y) { h = Squeeze <axes = [0]> (x) y = Relu (h) }"
    network = called("(float[1,3] x) => (float[3] y)", "y = pkg.Act (x)", ("pkg", 11, function))
    x = values(1, 3)
    session = onnxruntime.InferenceSession(normalize(network).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x[0], 0))


def test_the_first_node_is_named_where_each_can_be_converted_by_itself(monkeypatch, caplog):
    plain = onnx.version_converter.convert_version

    def refuse(network, version):
        if len(network.graph.node) > 1:
            raise RuntimeError("too many")
        return plain(network, version)

    monkeypatch.setattr(onnx.version_converter, "convert_version", refuse)
    network = parsed("(float[1] x) => (float[1] y) { [Relu_h] h = Relu (x) y = Neg (h) }", 9, 8)
    assert opset(normalize(network)) == 9
    assert "node 'Relu_h' (Relu) cannot be converted to opset 13: too many; it stays as it is" in caplog.text


def test_a_model_is_converted_to_the_opset_that_new_operators_need():
    network = normalize(plain(18))
    assert with_opset(network, 17) is network
    assert with_opset(network, 18) is network
    found = with_opset(network, 19)
    assert (opset(found), opset(network)) == (19, 18)
    assert found.graph.node == network.graph.node


def test_a_model_that_cannot_be_converted_to_an_opset_is_refused():
    network = normalize(model([node("Upsample", ["x"], ["y"])], [info("x", F, [1])], [info("y", F, [1])], opset=9))
    with pytest.raises(
        ModelError,
        match=r"(?s)has opset 9, and node 'Upsample_y' .Upsample. cannot be converted to opset 19.*Do: export .* 19 or newer",
    ):
        with_opset(network, 19)


@pytest.mark.parametrize(
    ("own", "body"),
    [
        (11, "y = Softmax <axis = 1> (a)"),
        (12, "s = ReduceSum <axes = [1]> (a) y = Sub (a, s)"),
        (10, "y = Clip <min = -0.5, max = 0.5> (a)"),
        (12, "u = Unsqueeze <axes = [0]> (a) y = Squeeze <axes = [0]> (u)"),
    ],
)
def test_a_function_of_an_older_opset_computes_what_its_body_does_there(own, body):
    """onnxruntime reads such bodies as if they were of the model's opset, so it says what they give in a model of their own."""
    calling = called(
        "(float[2,3,4] x) => (float[p,q,r] z)",
        "t = d.f (x) z = Relu (t)",
        ("d", own, f"f (a) => (y) {{ {body} }}"),
        ir=10,
    )
    plain = parsed(f"(float[2,3,4] x) => (float[p,q,r] z) {{ a = Identity (x) {body} z = Relu (y) }}", own, 6)
    x = np.random.default_rng(5).standard_normal((2, 3, 4)).astype(np.float32)
    written = normalize(calling)
    assert not written.functions
    np.testing.assert_allclose(literal(written, {"x": x})[0], literal(plain, {"x": x})[0], 1e-6)
