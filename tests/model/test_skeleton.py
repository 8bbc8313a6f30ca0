"""Operators that nobody knows: the message that says what to write, and that what it says runs."""

from __future__ import annotations

import importlib.util
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.engines.base.operator_support import unsupported_nodes_in_error
from pytrtplugins.errors import BuildError, ModelError
from pytrtplugins.model.decompose import infer_shapes
from pytrtplugins.model.proto import tensors_of
from pytrtplugins.model.skeleton import Signatures, _operator_counts_text, nodes_beyond_onnx, skeleton, unknown_nodes
from pytrtplugins.passes import prepare
from tests.onnx_parts import parsed


def model_with(op_type="Scale", **attributes):
    """x → Relu → an operator of nobody's with a constant → Neg → y."""
    text = f"""(float[N,3] x) => (float[N,3] y) {{
        "/m/a.1" = Relu (x) [scale1] b = acme.skeletons.{op_type} ("/m/a.1", w) y = Neg (b) }}"""
    model = parsed(text, 18, 9, w=np.float32([1, 2, 3]))
    model.graph.node[1].attribute.extend(helper.make_attribute(*item) for item in attributes.items())
    return model


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_every_engine_ends_with_the_nodes_signature_and_a_class_to_begin_with(engine):
    with pytest.raises(BuildError) as caught:
        ptp.build(model_with(alpha=0.5), engine=engine)
    text = str(caught.value)
    assert text.startswith(f"engine '{engine}': the operator acme.skeletons::Scale is not known (node 'scale1': ")
    assert "/m/a.1: float32[N, 3], w: float32[3] (constant) → b" in text
    assert "  pytrt run MODEL --plugins scale.py " in text
    assert "  pytrt replace MODEL scale1 scale.py:Scale --from-node --inputs /m/a.1,w -o OUT.onnx " in text
    assert text.endswith(skeleton(model_with(alpha=0.5).graph.node[1]))
    assert (caught.value.op, caught.value.node) == ("Scale", "scale1")


def test_the_class_runs_once_it_is_filled_in(tmp_path):
    model = model_with("Filled", alpha=0.5, axes=[1, 2], mode="fast", table=numpy_helper.from_array(np.float32([1, 2])))
    source = skeleton(model.graph.node[1])
    assert (
        "    alpha: float = 0.5\n    axes: tuple[int, ...] = (1, 2)\n    mode: str = 'fast'\n    table: np.ndarray\n"
        in source
    )
    path = tmp_path / "scale.py"
    path.write_text(source.replace('raise NotImplementedError("compute b, in arrays")', "return a_1 * w * self.alpha"))
    spec = importlib.util.spec_from_file_location("scale", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert not unknown_nodes(model)
    with ptp.build(model, engine="reference").create_context() as context:
        found = context.run({"x": np.float32([[1, -1, 2]])})["y"]
    np.testing.assert_array_equal(found, [[-0.5, 0, -3]])


@pytest.mark.parametrize(
    ("node", "lines"),
    [
        (helper.make_node("Two", ["in", "self"], ["p", "q"], domain="acme"), ["def compute(self, x_in, x_self)", "return (x_in, x_in)"]),
        (helper.make_node("3D", ["x"], ["y"], domain="acme"), ["@ptp.plugin(namespace='acme', name='3D')\nclass Layer"]),
        (helper.make_node("Odd", [], ["y"], domain="acme", class_=1), ["    class_: int = 1\n", "def output_dims(self)", "return ()"]),
        (helper.make_node("Inf", ["x"], ["y"], domain="acme", top=float("inf")), ["# attribute 'top' cannot be a field"]),
    ],
    ids=["two outputs", "a type that is no name", "no inputs", "what no field holds"],
)  # fmt: skip
def test_odd_nodes_give_source_that_python_reads(node, lines):
    source = skeleton(node)
    compile(source, "skeleton.py", "exec")
    assert [line for line in lines if line not in source] == []


def rows(domain):
    """ids → an operator of nobody's with a table → MatMul → y."""
    text = f"(int64[N] ids) => (float[N,1] y) {{ [rows] e = {domain}.Rows (ids, table) [fc] y = MatMul (e, w) }}"
    return parsed(text, 18, 9, table=np.eye(4, 2, dtype=np.float32), w=np.float32([[1], [2]]))


def test_a_class_whose_inputs_differ_in_type_says_its_types():
    with pytest.raises(BuildError) as caught:
        ptp.build(rows("acme.skeletons.typed"), engine="reference")
    source = str(caught.value).partition("\n\n")[2]
    assert source.splitlines() == [
        "import pytrtplugins as ptp",
        "",
        "",
        "@ptp.plugin(namespace='acme.skeletons.typed')",
        "class Rows(ptp.Plugin):",
        '    """What Rows computes."""',
        "",
        "    def output_dims(self, ids, table):",
        "        return ids  # the dims of e",
        "",
        "    def output_dtypes(self, ids, table):",
        "        return ptp.DType.FLOAT32  # the types of e",
        "",
        "    def supports_format(self, position, descs):",
        "        dtypes = (ptp.DType.INT64, ptp.DType.FLOAT32, ptp.DType.FLOAT32)  # of the inputs, then of the outputs",
        '        return descs[position].layout == "linear" and descs[position].dtype == dtypes[position]',
        "",
        "    def compute(self, ids, table):",
        '        raise NotImplementedError("compute e, in arrays")',
    ]
    source = source.replace("return ids  #", "return ids[0], table[1]  #")
    source = source.replace('raise NotImplementedError("compute e, in arrays")', "return table[ids]")
    found: dict[str, type[ptp.Plugin]] = {}
    exec(compile(source, "skeleton.py", "exec"), found)
    assert found["Rows"]().all_output_dtypes([ptp.DType.INT64, ptp.DType.FLOAT32], 1) == (ptp.DType.FLOAT32,)
    with ptp.build(rows("acme.skeletons.typed"), engine="cpu").create_context() as context:
        np.testing.assert_array_equal(context.run({"ids": np.array([0, 1, 2])})["y"], [[1], [2], [0]])


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
def test_a_plugin_with_inputs_of_two_types_that_does_not_say_what_it_gives_is_named(engine):
    @ptp.plugin(namespace="acme.skeletons.untyped")
    class Rows(ptp.Plugin):
        def output_dims(self, ids, table):
            return ids[0], table[1]

        def compute(self, ids, table):
            return table[ids]

    with pytest.raises(ModelError) as caught:
        ptp.build(rows("acme.skeletons.untyped"), engine=engine)
    assert str(caught.value).endswith(
        "\nCauses: node 'rows' (Rows) is a plugin's, whose outputs have the type of its first input where it has no output_dtypes.\n"
        "Do: write output_dtypes and supports_format in Rows"
    )


def test_types_and_dims_that_are_not_known_are_said_so():
    model = prepare(model_with())
    (node,) = unknown_nodes(model)
    assert Signatures(model).of(node) == "/m/a.1: float32[N, 3], w: float32[3] (constant) → b: type unknown"


def test_all_nodes_are_described_with_one_look_at_each_graph(monkeypatch):
    looks = []
    monkeypatch.setattr(
        "pytrtplugins.model.skeleton.tensors_of", lambda graph: looks.append(graph) or tensors_of(graph)
    )
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y) { h = Neg (x) y = If (c) <'
        "then_branch = a () => (float[2] u) <float[2] k = {1, 2}> { u = Add (h, k) },"
        " else_branch = b () => (float[2] v) { v = Abs (h) }> }"
    )
    model = infer_shapes(onnx.parser.parse_model(text))
    signatures = Signatures(model)
    inner = [item.g.node[0] for item in model.graph.node[1].attribute]
    found = [signatures.of(node) for node in (*model.graph.node, *inner)]
    assert found == [
        "x: float32[2] → h: float32[2]",
        "c: bool[] → y: float32[2]",
        "h: float32[2], k: float32[2] (constant) → u: float32[2]",
        "h: float32[2] → v: float32[2]",
    ]
    assert len(looks) == 3


def test_domains_of_libraries_are_left_to_them():
    model = model_with()
    model.graph.node[1].domain = "com.microsoft"
    assert unknown_nodes(model) == []
    assert [node.op_type for node in nodes_beyond_onnx(model)] == ["Scale"]


@pytest.mark.parametrize("domain", ["", "com.microsoft", "org.pytorch.aten"])
@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_an_operator_that_its_library_does_not_have_is_named_by_the_engine(engine, domain):
    model = model_with("NobodyHasThis", alpha=0.5)
    model.graph.node[1].domain = domain
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.opset_import.append(helper.make_opsetid("org.pytorch.aten", 1))
    with pytest.raises(BuildError) as caught:
        ptp.build(model, engine=engine)
    text = str(caught.value)
    assert f"{domain}::NobodyHasThis".removeprefix("::") in text.splitlines()[0]
    assert "(node 'scale1': /m/a.1: float32[N, 3], w: float32[3] (constant) → b" in text
    assert ("--plugins nobodyhasthis.py" in text) == (domain == "org.pytorch.aten")
    assert (
        "  pytrt replace MODEL scale1 nobodyhasthis.py:NobodyHasThis --from-node --inputs /m/a.1,w -o OUT.onnx " in text
    )
    assert f"@ptp.plugin(namespace={domain if domain.startswith('org') else 'custom'!r})" in text
    assert (caught.value.op, caught.value.node, caught.value.engine) == ("NobodyHasThis", "scale1", engine)
    source = text.partition("\n\n")[2]
    compile(source, "skeleton.py", "exec")
    assert source == skeleton(model.graph.node[1])


def in_branch(op_type, domain):
    """If(c): x → Relu → an operator of nobody's, else Neg."""
    inner = f"[deep] t2 = {domain + '.' * bool(domain)}{op_type} (t1, w)"
    text = f"""(float[N,3] x, bool c) => (float[] y) {{ [branch] y = If (c) <
        then_branch = then () => (float[] t2) {{ t1 = Relu (x) {inner} }}, else_branch = else () => (float[] e) {{ e = Neg (x) }}> }}"""
    return parsed(text, 18, 9, w=np.ones(3, np.float32))


@pytest.mark.parametrize("domain", ["", "acme.skeletons"])
@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_inside_of_a_branch_it_is_found_with_what_the_branch_knows_of_its_tensors(engine, domain):
    with pytest.raises(BuildError) as caught:
        ptp.build(in_branch("Deep", domain), engine=engine)
    text = str(caught.value)
    assert "(node 'deep' within 'branch' (If): t1: float32[N, 3], w: float32[3] (constant) → t2: float32)." in text
    assert ("--plugins deep.py" in text) == bool(domain)
    assert "pytrt replace" not in text
    assert ("export the model again with the operator in the domain 'custom'" in text) == (not domain)
    assert (caught.value.op, caught.value.node) == ("Deep", "deep")


def test_other_operators_that_nobody_knows_are_named_beside_the_first():
    model = model_with()
    for index in range(3):
        model.graph.node.append(helper.make_node("Other", ["x"], [f"o{index}"], domain="acme.skeletons"))
        model.graph.output.append(helper.make_tensor_value_info(f"o{index}", TensorProto.FLOAT, None))
    with pytest.raises(
        BuildError, match=r"Nor does it have these, .* --engine reference` .*: acme.skeletons::Other \(3\)\n"
    ):
        ptp.build(model, engine="reference")


def test_as_many_operators_are_named_as_300_characters_hold():
    for length, rest in ((287, "b (1)"), (288, "and 1 more")):  # 287 + " (2), " + "b (1), " = 300
        assert _operator_counts_text(Counter({"a" * length: 2, "b": 1})) == f"{'a' * length} (2), {rest}"
    assert _operator_counts_text(Counter({"a" * 400: 2, "b": 1})) == f"{'a' * 400} (2), and 1 more"


def test_calls_of_functions_are_known_and_what_stands_in_functions_is_looked_at():
    model = model_with()
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme.skeletons", 1)]
    body = [helper.make_node("Inner", ["p", "q"], ["r"], "inner", domain="acme.skeletons")]
    model.functions.append(helper.make_function("acme.skeletons", "Scale", ["p", "q"], ["r"], body, opsets))
    assert [node.op_type for node in unknown_nodes(model)] == ["Inner"]


PLUGIN_NOT_FOUND = 'creator && "Plugin not found, are the plugin name, version, and namespace correct?"'
"""What onnx-tensorrt's ``checkFallbackPluginImporter`` gives as the description (onnxOpCheckers.cpp, 10.1)."""


@pytest.mark.parametrize(
    "said", [PLUGIN_NOT_FOUND, f"Assertion failed: {PLUGIN_NOT_FOUND}", "the operator is not supported"]
)
@pytest.mark.parametrize("name", ["scale1", ""])
def test_what_tensorrts_parser_says_of_a_node_finds_it(said, name):
    model = model_with("Scale")
    text = f"node 1 {name!r} (Scale): {said}"
    (found,) = unsupported_nodes_in_error(model, BuildError("TensorRT's parser cannot read the model", text=text))
    assert found.op_type == "Scale"
    assert not unsupported_nodes_in_error(
        model, BuildError("TensorRT's parser cannot read the model", text=f"node 1 {name!r} (Scale): bad dims")
    )
