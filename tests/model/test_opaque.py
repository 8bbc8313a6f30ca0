"""Nodes that nobody has a class for stay as they are; what does not depend on them is calibrated, quantized and compared."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.errors import BuildError, ModelError, RegistryError, UsageError
from pytrtplugins.export.typed_model import FloatNode, export_half, export_quantized
from pytrtplugins.model.opaque import (
    computable_part,
    hide_opaque,
    opaque_boundary,
    opaque_nodes,
    show_opaque,
    undescribed_tensors,
    with_shapes,
)
from pytrtplugins.passes import prepare
from tests.passes import nets

FORMS = {
    "in a domain": ("TRT", {}),
    "in ONNX's domain": ("", {}),
    "a plugin that is not registered": ("owners", {"plugin_namespace": "owners", "plugin_version": "1"}),
}


def detector(domain="TRT", attributes=None, *, middle=False, dims=None):
    """Convolutions, a node that nobody has a class for, and with ``middle`` convolutions behind it; an output beside it."""
    net = nets.Net(size=16)
    a = net.conv("data", "a", 8)
    c = net.conv(net.conv(a, "b", 8), "c", 8)
    given = {"threshold": 0.5, **(attributes or {})}
    net.nodes.append(helper.make_node("EfficientNMS_TRT", [c], ["boxes"], "nms", domain=domain, **given))
    outputs = ["boxes", "b"]
    if middle:
        net.channels["boxes"] = 8
        net.conv(net.conv("boxes", "d", 8), "e", 8, leaky=False)
        outputs = ["e", "b"]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, 16, 16) if dims or name != "boxes" else None)
        for name in outputs
    ]
    extra = [helper.make_tensor_value_info("boxes", TensorProto.FLOAT, dims)] if dims and middle else []
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, 16, 16])
    graph = helper.make_graph(net.nodes, "net", [data], infos, net.constants, value_info=extra)
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def data():
    return MinMaxCalibrator([{"data": nets.image(detector(), batch=1)}])


def nms(path):
    return next(node for node in onnx.load(path).graph.node if node.op_type == "EfficientNMS_TRT")


@pytest.mark.parametrize("form", FORMS)
def test_hidden_nodes_are_shown_as_they_were(form):
    model = detector(*FORMS[form])
    hidden = hide_opaque(model)
    assert [node.name for node in opaque_nodes(hidden)] == ["nms"]
    assert network_digest(hidden) == network_digest(model)
    show_opaque(hidden)
    assert hidden == model
    assert hide_opaque(nets.tiny_yolo()).graph.node[0].domain == ""


def test_what_can_be_computed_ends_before_the_nodes():
    model = prepare(detector(middle=True, dims=[1, 8, 16, 16]))
    part = computable_part(model)
    assert [info.name for info in part.graph.output] == ["b", "c_leaky"]
    assert opaque_boundary(model) == {"nms, input 0": "c_leaky"}
    whole = prepare(nets.tiny_yolo())
    assert computable_part(whole) is whole
    first = detector()
    del first.graph.node[:-1]
    del first.graph.output[1:]
    first.graph.node[0].input[0] = "data"
    with pytest.raises(ModelError, match=r"nothing of the model can be computed .*\n?.*\nDo: give it a class"):
        computable_part(first)


def test_tensors_before_and_around_are_calibrated():
    table = calibrate(detector(middle=True), data(), progress=False)
    assert set(table) == {"data", "a", "a_leaky", "b", "b_leaky", "c", "c_leaky"}


@pytest.mark.parametrize("reader", ["tensorrt", "onnxruntime"])
@pytest.mark.parametrize("rest", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("form", FORMS)
def test_layers_before_and_around_are_quantized(tmp_path, form, rest, reader):
    model = detector(*FORMS[form], middle=True, dims=[1, 8, 16, 16])
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=data(), rest=rest, reader=reader)
    assert exported.opaque == ("nms",)
    assert set(exported.quantized) == {"a", "b", "c"}
    assert exported.missing == ("boxes",)
    assert FloatNode("d", "the calibration has no scale of 'boxes'") in exported.float_layers
    if rest != "bf16":
        errors = {output.name: output.relative for output in exported.comparison.outputs}
        assert set(errors) == {"b", "nms, input 0"}
        assert 0 < max(errors.values()) < 0.1
    if reader == "tensorrt":
        assert not exported.parser.refused
        assert "node 'nms' has no known class" in exported.parser.problem
    before, after = next(node for node in model.graph.node if node.name == "nms"), nms(tmp_path / "q.onnx")
    assert (after.domain, list(after.attribute), list(after.output)) == (
        before.domain,
        list(before.attribute),
        ["boxes"],
    )


def test_a_scale_from_elsewhere_quantizes_what_is_behind(tmp_path):
    model = detector(middle=True, dims=[1, 8, 16, 16])
    table = {**calibrate(model, data(), progress=False), "boxes": np.float32(0.01), "d_leaky": np.float32(0.01)}
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=CalibrationTable(table))
    assert exported.quantized == ("a", "b", "c", "d")


def test_half_precision_goes_around_them(tmp_path):
    model = detector(middle=True, dims=[1, 8, 16, 16])
    exported = export_half(model, tmp_path / "h.onnx", precision="fp16")
    assert exported.float32_nodes == (FloatNode("nms", "it has no known class"),)
    written = onnx.load(tmp_path / "h.onnx")
    ends = {
        name: node.op_type
        for node in written.graph.node
        for name in (*node.input, *node.output)
        if node.op_type == "Cast"
    }
    assert set(nms(tmp_path / "h.onnx").input) <= set(ends)


def test_dims_that_nobody_knows_are_asked_for(tmp_path):
    for middle in (False, True):
        model = detector(middle=middle)
        assert undescribed_tensors(prepare(model)) == ["boxes"]
        with pytest.raises(ModelError, match=r"\nDo: --shape boxes=") as caught:
            export_half(model, tmp_path / "h.onnx", precision="fp16")
        assert caught.value.facts["tensor"] == "boxes"
        described = with_shapes(model, {"boxes": ((1, 8, 16, 16), "float32")})
        assert undescribed_tensors(prepare(described)) == []
        export_half(described, tmp_path / "h.onnx", precision="fp16")
        onnx.checker.check_model(tmp_path / "h.onnx", full_check=True)
    with pytest.raises(UsageError, match=r"they give 'boxes'\.\nDo: pytrt inspect MODEL --nodes"):
        with_shapes(model, {"b": ((1,), "float32")})


def test_engines_that_must_run_them_refuse_by_name():
    for form, error in zip(FORMS, (BuildError, BuildError, RegistryError), strict=True):
        with pytest.raises(error, match="EfficientNMS_TRT"):
            ptp.build(detector(*FORMS[form]), engine="onnxruntime")
