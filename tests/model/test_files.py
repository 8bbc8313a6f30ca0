"""ONNX files opened, edited and saved; weights inside or beside them."""

import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError
from tests.model.networks import Line, Shuffle, image, network, node, run, shuffle_net, small, weights


def test_the_model_given_is_not_changed_and_what_it_says_of_itself_is_kept():
    model = shuffle_net()
    model.producer_name, model.graph.doc_string = "someone", "something"
    helper.set_model_props(model, {"license": "free"})
    before = model.SerializeToString()
    graph = ptp.load_onnx(model)
    graph.replace("join", Shuffle(2), inputs=["a"])
    graph.insert_after("y", Line(2))
    assert model.SerializeToString() == before
    edited = graph.model
    assert (edited.producer_name, edited.graph.doc_string, edited.ir_version) == ("someone", "something", 10)
    assert edited.metadata_props[0].value == "free"
    assert [item.domain for item in edited.opset_import].count("tests.graph") == 1


def test_a_file_is_opened_edited_and_saved(tmp_path):
    onnx.save(shuffle_net(), tmp_path / "model.onnx")
    graph = ptp.load_onnx(tmp_path / "model.onnx")
    graph.replace("join", Shuffle(2), inputs=["a"])
    assert graph.save(tmp_path / "edited.onnx") == (tmp_path / "edited.onnx",)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["edited.onnx", "model.onnx"]
    assert onnx.load(tmp_path / "edited.onnx") == graph.model
    again = ptp.load_onnx(str(tmp_path / "edited.onnx"))
    assert repr(again) == "<Graph of 3 nodes: x (N, 4, 6, 6) -> y (N, 3, 4, 4)>"


def test_weights_beside_the_model_stay_beside_it(tmp_path):
    nodes = [node("Conv", "x k", "a", "conv"), node("Reshape", "a s", "y", "flat")]
    model = network(nodes, k=weights(32, 4, 3, 3), s=np.array([0, 512]))
    path, edited = tmp_path / "in" / "model.onnx", tmp_path / "out" / "edited.onnx"
    path.parent.mkdir()
    edited.parent.mkdir()
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    onnx.save(copy, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    graph = ptp.load_onnx(path)
    graph.insert_after("a", Shuffle(4))
    written = graph.save(edited)
    assert written[0] == edited
    assert re.fullmatch(r"edited\.onnx\.[0-9a-f]{16}\.data", written[1].name)
    assert written[1].is_file()
    assert edited.stat().st_size < 2000
    onnx.checker.check_model(edited, full_check=True)
    assert onnx.load(edited).graph.initializer[0].raw_data == model.graph.initializer[0].raw_data
    x = image()
    np.testing.assert_array_equal(run(onnx.load(edited), x)["y"], run(graph, x)["y"])
    graph.save(path)  # onto itself
    assert ptp.load_onnx(path).model == graph.model


def test_a_model_above_protobufs_limit_is_saved_with_its_weights_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr("pytrtplugins.model.files._MAX_BYTES", 1000)
    graph = ptp.load_onnx(network([node("Conv", "x k", "y")], k=weights(32, 4, 3, 3)))
    assert len(graph.save(tmp_path / "large.onnx")) == 2
    loaded = onnx.load(tmp_path / "large.onnx").graph.initializer[0]
    np.testing.assert_array_equal(
        numpy_helper.to_array(loaded), numpy_helper.to_array(graph.model.graph.initializer[0])
    )


def test_a_file_that_is_no_model_is_refused_with_the_reason(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        ptp.load_onnx(tmp_path / "none.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"\x00broken")
    with pytest.raises(ModelError, match=r"broken.onnx: not an ONNX model"):
        ptp.load_onnx(tmp_path / "broken.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match=r"empty.onnx: the model has no nodes and no outputs.\nDo: darknet2caffe"):
        ptp.load_onnx(tmp_path / "empty.onnx")


def test_weights_that_are_missing_are_named(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(
        network([node("Conv", "x k", "y")], k=weights(32, 4, 3, 3)), path, save_as_external_data=True, location="w.bin"
    )
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"weights lie in other files.*w\.bin.*\nDo: put them beside it"):
        ptp.load_onnx(path)
    with pytest.raises(
        ModelError, match=r"initializer 'k': its data lie in another file[\s\S]*\nDo: pytrtplugins.load_onnx\(PATH\)"
    ):
        ptp.load_onnx(onnx.load(path, load_external_data=False))


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    graph = small()
    graph.model.graph.initializer.add(name="w", data_type=1, dims=[1], raw_data=b"1234")
    with pytest.raises(FileNotFoundError):
        graph.save(tmp_path / "missing" / "model.onnx")
    assert path.read_bytes() == b"old"


def test_build_takes_a_graph_as_it_stands():
    graph = small()
    graph.replace("relu", Line(2))
    x = image()
    with ptp.build(graph, engine="reference").create_context() as context:
        np.testing.assert_allclose(context.run({"x": x})["y"], -2 * x)
