"""Files are those that `to_onnx` describes, whatever the way on which they are written."""

from __future__ import annotations

import re
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from darknet2caffe import read_network, to_onnx, write_onnx
from darknet2caffe._onnx_writer import length_delimited
from pytrtplugins.errors import UsageError
from tests.darknet2caffe.networks import image, network


def parts(model: onnx.ModelProto):
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    del rest.graph.initializer[:]
    return rest, constants


@pytest.mark.parametrize("custom_layers", ["nodes", "functions", "inline"])
@pytest.mark.parametrize("external_data", [False, True])
def test_the_file_holds_what_to_onnx_gives(tmp_path, custom_layers, external_data):
    net = network()
    options = {"custom_layers": custom_layers, "batch": "dynamic", "fold": False}
    files = write_onnx(net, tmp_path / "a.onnx", external_data=external_data, **options)
    assert files[0].name == "a.onnx"
    assert len(files) == 1 + external_data
    assert all(re.fullmatch(r"a\.onnx\.[0-9a-f]{16}\.data", file.name) for file in files[1:])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(file.name for file in files)
    found, constants = parts(onnx.load(files[0]))
    expected, values = parts(to_onnx(net, **options))
    assert found == expected
    assert constants.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(constants[name], value)


@pytest.mark.parametrize("external_data", [False, True])
def test_onnxruntime_runs_the_file(tmp_path, external_data):
    net = network()
    path, *_ = write_onnx(net, tmp_path / "a.onnx", external_data=external_data, custom_layers="inline")
    onnx.checker.check_model(path, full_check=True)
    x = image(net)
    (first, *_) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"data": x})
    model = to_onnx(net, custom_layers="inline").SerializeToString()
    (expected, *_) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"data": x})
    np.testing.assert_array_equal(first, expected)


def test_constants_in_a_file_beside_the_model_begin_at_pages(tmp_path):
    path, data = write_onnx(network(), tmp_path / "a.onnx", external_data=True)
    model = onnx.load(path, load_external_data=False)
    large = [tensor for tensor in model.graph.initializer if tensor.external_data]
    places = [{entry.key: entry.value for entry in tensor.external_data} for tensor in large]
    assert len(large) > 5
    assert {place["location"] for place in places} == {data.name}
    assert all(int(place["offset"]) % 4096 == 0 for place in places)
    assert max(int(place["offset"]) + int(place["length"]) for place in places) == data.stat().st_size


def test_a_conversion_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.onnx"
    path.write_bytes(b"old")
    net = read_network(network().cfg)
    with pytest.raises(UsageError, match="no weights"):
        write_onnx(net, path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"]
    assert path.read_bytes() == b"old"


def test_weights_of_2_gib_go_into_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["darknet2caffe.to_onnx"], "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="write_onnx"):
        to_onnx(network())
    assert len(write_onnx(network(), tmp_path / "a.onnx")) == 2


@pytest.mark.slow
def test_a_file_above_2_gib_is_written_and_runs(tmp_path):
    cfg, weights = tmp_path / "a.cfg", tmp_path / "a.weights"
    cfg.write_text("[net]\ninputs=30000\n[connected]\noutput=20000\nactivation=linear\n")
    with weights.open("wb") as file:
        file.write(bytes(20))
        file.truncate(16 + 4 * (20000 + 20000 * 30000))  # a header of 16 bytes, then zeros that take no room
        file.seek(16)
        file.write(np.arange(20000, dtype="<f4").tobytes())
    net = read_network(cfg, weights)
    path, data = write_onnx(net, tmp_path / "a.onnx")
    assert data.stat().st_size > 2**31
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"data": np.ones((1, 30000, 1, 1), np.float32)})
    np.testing.assert_array_equal(found.ravel(), np.arange(20000))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 300, 2**31, 2**40])
def test_lengths_are_protobufs_varints(size):
    from google.protobuf.internal import decoder

    data = length_delimited(9, size)
    assert data[0] == 9 << 3 | 2
    assert decoder._DecodeVarint(data, 1) == (size, len(data))
