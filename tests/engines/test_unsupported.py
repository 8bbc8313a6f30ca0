"""Which operators an engine lacks: what a list of nodes says, a build of the model says too."""

import re

import pytest

import pytrtplugins as ptp
from pytrtplugins.engines import unsupported_nodes
from pytrtplugins.errors import BuildError, UnavailableError, UsageError
from pytrtplugins.layers import Reorg

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from tests.engines.model_parts import parsed

ENGINES = ("cpu", "onnxruntime", "reference")


def chain(*types, shape=(1, 4)):
    """x → one operator after the other, each written as ``domain::Type`` → y."""
    names = ["x", *(f"t{index}" for index in range(len(types) - 1)), "y"]
    nodes = (
        f"{written} = {kind.replace('::', '.')} ({read})"
        for kind, read, written in zip(types, names, names[1:], strict=False)
    )
    dims, domains = list(shape), sorted({kind.rpartition("::")[0] for kind in types} - {""})
    model = parsed(f"(float{dims} x) => (float{dims} y) {{ {' '.join(nodes)} }}", 20, 9, domains)
    for index, node in enumerate(model.graph.node):
        node.name = f"n{index}"
    return model


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
    model.graph.output[0].type.tensor_type.ClearField("shape")
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
    text = f"""(uint8[B] file, float[1,3,8,8] x, float[R,4] rois, int64[R] ids, bool c)
        => (uint8[] image, float[] a, float[] b) {{
        image = ImageDecoder (file)  r = RoiAlign (x, rois, ids)  a = Relu (r)
        b = If (c) <then_branch = t () => (float[] t) {{ t = RoiAlign (x, rois, ids) }},
            else_branch = e () => (float[] e) {{ e0 = RoiAlign (x, rois, ids)  e = {odd.replace("::", ".")} (e0) }}> }}"""
    return parsed(text, 22, 10, ["acme.none"])


@pytest.mark.parametrize(("odd", "lacking", "counts"), [
    ("acme.none::Odd", ["ImageDecoder_image", "RoiAlign_r", "RoiAlign_t", "RoiAlign_e0", "Odd_e"], "RoiAlign (3), ImageDecoder (1)"),
    ("Neg", ["ImageDecoder_image", "RoiAlign_r", "RoiAlign_t", "RoiAlign_e0"], "RoiAlign (3)"),
])  # fmt: skip
def test_onnxs_own_operators_are_all_found_too_in_branches_as_well(odd, lacking, counts):
    model = decoding(odd)
    found = unsupported_nodes(model, "onnxruntime")
    assert sorted(node.name for node in found) == sorted(lacking)
    words = r"Nor does it have these, .* --engine onnxruntime` .*: " + re.escape(counts) + "\n"
    with pytest.raises(BuildError, match=words):
        ptp.build(model, engine="onnxruntime")
