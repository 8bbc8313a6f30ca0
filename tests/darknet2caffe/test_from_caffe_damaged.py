"""Damaged caffe files give a network, or an error that says where."""

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from darknet2caffe import to_caffe
from darknet2caffe.from_caffe import from_caffe
from pytrtplugins.errors import ModelError
from tests.darknet2caffe.networks import network
from tests.darknet2caffe.test_from_caffe import HEADS
from tests.darknet2caffe.test_to_caffe import EXPRESSIBLE, LAYERS, small

_VALUES = st.sampled_from(
    [
        *("0", "-1", "1", "2", "7", "999999999", "2147483647", "99999999999999999999", "x", "nan", "inf", "1e39", "-0"),
        *('"a"', '"data"', "{", "}", "[1,2]", "true", "MAX", "TRAIN", "0x7fffffff"),
    ]
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Texts and weights of networks that have all layers between them."""
    folder = tmp_path_factory.mktemp("written")
    nets = [network(), small(HEADS), small(EXPRESSIBLE), *(small(layers) for layers in LAYERS.values())]
    files = []
    for number, net in enumerate(nets):
        text, binary = to_caffe(net, folder / "a", fold=number % 2 == 0)
        files.append((text.read_text(), binary.read_bytes()))
    return folder, files


@settings(deadline=10_000, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_prototxt_gives_a_network_or_an_error_with_its_line(written, data):
    folder, files = written
    text, binary = data.draw(st.sampled_from(files), "file")
    lines = text.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        place, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        match data.draw(st.sampled_from(["double", "drop", "swap", "value", "value", "copy", "character", "cut"])):
            case "double":
                lines.insert(other, lines[place])
            case "drop" if len(lines) > 1:
                del lines[place]
            case "swap":
                lines[place], lines[other] = lines[other], lines[place]
            case "value":
                lines[place] = lines[place].partition(":")[0] + ": " + data.draw(_VALUES)
            case "copy":
                lines[place] = lines[place].partition(":")[0] + ":" + lines[other].partition(":")[2]
            case "character" if lines[place]:
                at = data.draw(st.integers(0, len(lines[place]) - 1))
                lines[place] = lines[place][:at] + data.draw(st.characters(codec="utf-8")) + lines[place][at + 1 :]
            case "cut":
                lines = lines[: place + 1]
    (folder / "b.prototxt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "b.caffemodel").write_bytes(binary)
    try:
        model = from_caffe(folder / "b.prototxt", folder / "b.caffemodel")
    except ModelError as error:
        line = error.line
    else:
        line = 1
        assert model.graph.node
        assert model.graph.output
    assert 1 <= line <= len(lines) + 1


@settings(deadline=10_000, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_caffemodel_gives_a_network_or_an_error_with_the_place(written, data):
    folder, files = written
    text, binary = data.draw(st.sampled_from(files), "file")
    damaged = bytearray(binary[: data.draw(st.integers(0, len(binary)))] if data.draw(st.booleans()) else binary)
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            most = len(damaged) - 1 if data.draw(st.booleans()) else min(len(damaged) - 1, 300)
            damaged[data.draw(st.integers(0, most))] = data.draw(st.integers(0, 255))
    damaged += data.draw(st.binary(max_size=30))
    (folder / "b.prototxt").write_text(text, encoding="utf-8")
    (folder / "b.caffemodel").write_bytes(damaged)
    try:
        model = from_caffe(folder / "b.prototxt", folder / "b.caffemodel")
    except ModelError as error:
        place = error.offset if "offset" in error.facts else 0
    else:
        place = 0
        for tensor in model.graph.initializer:
            assert np.isfinite(onnx.numpy_helper.to_array(tensor)).all()
    assert 0 <= place <= len(damaged)
