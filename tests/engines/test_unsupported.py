"""Which operators an engine lacks: what a list of nodes says, a build of the model says too."""

from __future__ import annotations

import re

import pytest

import pytrtplugins as ptp
from pytrtplugins.engines import unsupported_nodes
from pytrtplugins.errors import BuildError, UnavailableError, UsageError
from pytrtplugins.layers import Reorg

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from onnx import TensorProto, helper

ENGINES = ("cpu", "onnxruntime", "reference")


def chain(*types, shape=(1, 4)):
    """x → one operator after the other, each written as ``domain::Type`` → y."""
    names = ["x", *(f"t{index}" for index in range(len(types) - 1)), "y"]
    nodes = []
    for index, (kind, read, written) in enumerate(zip(types, names, names[1:], strict=False)):
        domain, _, op_type = kind.rpartition("::")
        nodes.append(helper.make_node(op_type, [read], [written], f"n{index}", domain=domain))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    domains = {node.domain for node in nodes} - {""}
    opsets = [helper.make_opsetid("", 20), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    return helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:]), opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("engine", ENGINES)
def test_all_nodes_of_all_kinds_that_it_lacks_are_found_at_once(engine):
    model = chain("Relu", "acme.none::A", "Neg", "NobodyHasThis", "com.microsoft::NorThis", "acme.none::A")
    assert [node.name for node in unsupported_nodes(model, engine)] == ["n1", "n3", "n4", "n5"]
    with pytest.raises(BuildError):
        ptp.build(model, engine=engine)


@pytest.mark.parametrize(("engine", "lacking"), [("cpu", []), ("onnxruntime", []), ("reference", ["n1"])])
def test_operators_of_libraries_are_asked_for_where_they_stand(engine, lacking):
    model = chain("Relu", "com.microsoft::Inverse", "Neg", shape=(2, 2))
    assert [node.name for node in unsupported_nodes(model, engine)] == lacking
    if not lacking:
        ptp.build(model, engine=engine)


@pytest.mark.parametrize("engine", [*ENGINES, "null"])
def test_a_model_of_onnxs_operators_and_plugins_lacks_nothing(engine):
    model = chain("Relu", "darknet::Reorg", shape=(1, 4, 4, 4))
    model.graph.node[1].CopyFrom(Reorg(stride=2).as_node(["t0"], ["y"], "n1"))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.shape.dim.extend(
        helper.make_tensor_value_info("y", 1, [1, 16, 2, 2]).type.tensor_type.shape.dim
    )
    assert unsupported_nodes(model, engine) == []


def test_an_operator_of_onnxs_that_it_lacks_is_named_by_the_build(monkeypatch):
    from pytrtplugins.engines.reference.engine import ReferenceEngine

    def refuse(cls, model, options, progress=False):
        raise BuildError("engine 'reference' does not have the operator ai.onnx::Neg (node 'n1').\nDo: nothing")

    monkeypatch.setattr(ReferenceEngine, "build", classmethod(refuse))
    assert [node.name for node in unsupported_nodes(chain("Relu", "Neg", "Exp"), "reference")] == ["n1"]


def test_what_is_no_matter_of_operators_stays_an_error(monkeypatch):
    from pytrtplugins.engines.reference.engine import ReferenceEngine

    def refuse(cls, model, options, progress=False):
        raise BuildError("engine 'reference': it is full")

    monkeypatch.setattr(ReferenceEngine, "build", classmethod(refuse))
    with pytest.raises(BuildError, match="it is full"):
        unsupported_nodes(chain("Relu", "Neg"), "reference")
    with pytest.raises(UsageError, match="engine 'fast' is unknown"):
        unsupported_nodes(chain("Relu"), "fast")


def test_an_engine_that_is_not_here_says_so():
    from pytrtplugins.engines import availability

    missing = [item.name for item in availability() if item.reason]
    for name in missing:
        with pytest.raises(UnavailableError):
            unsupported_nodes(chain("Relu"), name)


def decoding(odd="acme.none::Odd"):
    """ImageDecoder, RoiAlign outside and inside of both branches of an If, and another operator in one of them."""
    info, (domain, _, op_type) = helper.make_tensor_value_info, odd.rpartition("::")
    align = ["x", "rois", "ids"]
    last = helper.make_node(op_type, ["e0"], ["e"], "odd", domain=domain)
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("RoiAlign", align, ["t"], "then")], "t", [], [info("t", 1, None)]
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("RoiAlign", align, ["e0"], "else"), last], "e", [], [info("e", 1, None)]
        ),
    }
    nodes = [
        helper.make_node("ImageDecoder", ["file"], ["image"], "decode"),
        helper.make_node("RoiAlign", align, ["r"], "align"),
        helper.make_node("Relu", ["r"], ["a"], "relu"),
        helper.make_node("If", ["c"], ["b"], "branch", **branches),
    ]
    dims = {
        "file": (TensorProto.UINT8, ["B"]),
        "x": (1, [1, 3, 8, 8]),
        "rois": (1, ["R", 4]),
        "ids": (TensorProto.INT64, ["R"]),
    }
    inputs = [*(info(name, *rest) for name, rest in dims.items()), info("c", TensorProto.BOOL, [])]
    outputs = [info("image", TensorProto.UINT8, None), info("a", 1, None), info("b", 1, None)]
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("acme.none", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(("odd", "lacking", "counts"), [
    ("acme.none::Odd", ["decode", "align", "then", "else", "odd"], "RoiAlign (3), ImageDecoder (1)"),
    ("Neg", ["decode", "align", "then", "else"], "RoiAlign (3)"),
])  # fmt: skip
def test_onnxs_own_operators_are_all_found_too_in_branches_as_well(odd, lacking, counts):
    model = decoding(odd)
    found = unsupported_nodes(model, "onnxruntime")
    assert sorted(node.name for node in found) == sorted(lacking)
    with pytest.raises(
        BuildError, match=r"Nor does it have these, .* --engine onnxruntime` .*: " + re.escape(counts) + "\n"
    ):
        ptp.build(model, engine="onnxruntime")
