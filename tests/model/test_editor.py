"""A graph that is saved with the bodies of its plugins runs in plain onnxruntime, bit for bit as in ours."""

import numpy as np
import onnx
import onnxruntime

import pytrtplugins as ptp
from pytrtplugins.layers import Reorg
from tests.engines.networks import conv_net, image


def test_a_graph_is_saved_with_the_bodies_of_its_plugins(tmp_path):
    graph = ptp.load_onnx(conv_net(Reorg(stride=2), Reorg(stride=2, reverse=True), channels=8))
    graph.save(tmp_path / "plain.onnx")
    graph.save(tmp_path / "bodies.onnx", functions=True)
    assert not onnx.load(tmp_path / "plain.onnx").functions
    assert not graph.model.functions
    model = onnx.load(tmp_path / "bodies.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert {function.name for function in model.functions} == {"Reorg"}
    assert [node.domain for node in model.graph.node if node.domain] == ["darknet"] * 2
    session = onnxruntime.InferenceSession(tmp_path / "bodies.onnx", providers=["CPUExecutionProvider"])
    with ptp.build(tmp_path / "plain.onnx", engine="onnxruntime").create_context() as context:
        expected = context.run({"data": image()})["y"]
    np.testing.assert_array_equal(session.run(None, {"data": image()})[0], expected)
