"""Operators that nobody knows: the message that says what to write, and that what it says runs."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import BuildError
from pytrtplugins.model.skeleton import signature, skeleton, unknown_nodes
from pytrtplugins.passes import prepare


def model_with(op_type="Scale", **attributes):
    """x → Relu → an operator of nobody's with a constant → Neg → y."""
    nodes = [
        helper.make_node("Relu", ["x"], ["/m/a.1"]),
        helper.make_node(op_type, ["/m/a.1", "w"], ["b"], "scale1", domain="acme.skeletons", **attributes),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(np.float32([1, 2, 3]), "w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme.skeletons", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_every_engine_ends_with_the_nodes_signature_and_a_class_to_begin_with(engine):
    with pytest.raises(BuildError) as caught:
        ptp.build(model_with(alpha=0.5), engine=engine)
    text = str(caught.value)
    assert text.startswith(f"engine '{engine}': the operator acme.skeletons::Scale is not known (node 'scale1': ")
    assert "/m/a.1: float32[N, 3], w: float32[3] (constant) → b" in text
    assert "--plugins scale.py" in text
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


def test_types_and_dims_that_are_not_known_are_said_so():
    model = prepare(model_with())
    (node,) = unknown_nodes(model)
    assert signature(model, node) == "/m/a.1: float32[N, 3], w: float32[3] (constant) → b: type unknown"


def test_domains_of_libraries_are_left_to_them():
    model = model_with()
    model.graph.node[1].domain = "com.microsoft"
    assert unknown_nodes(model) == []
