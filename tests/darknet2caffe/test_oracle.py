"""Converted networks against libdarknet itself, number by number."""

from __future__ import annotations

import numpy as np
import pytest

from darknet2caffe import read_network, to_onnx, write_darknet
from pytrtplugins.errors import CfgError
from tests.darknet2caffe.networks import CFGS, SHARED, image, network, published, run
from tests.darknet2caffe.table import row
from tests.measures import relative_error

TOLERANCE = 1e-4  # of the largest magnitude: darknet adds up thousands of products in another order
YOLO_FASTEST = "data/pretrained/yolo-fastest-1.1"


def check(libdarknet, folder, net, *, weights=None, every_layer=False) -> dict[str, float]:
    """Compare the outputs, or every layer; returns the relative errors of the outputs."""
    if weights is None:
        weights = folder / "a.weights"
        write_darknet(net, folder / "a.cfg", weights)
    else:
        write_darknet(net, folder / "a.cfg")
    x = image(net)
    values = run(to_onnx(net), x)
    with libdarknet.load(folder / "a.cfg", weights) as oracle:
        last = oracle.predict(x[0])
        np.testing.assert_array_equal(last, oracle.layer_output(len(oracle) - 1))
        if every_layer:
            for layer in net.layers:
                found = values[net.tensor_name(layer.index)]
                assert relative_error(found, oracle.layer_output(layer.index)) < TOLERANCE, layer.name
        errors = {
            layer.name: relative_error(values[layer.name], oracle.layer_output(layer.index)) for layer in net.outputs
        }
    print(f"{net.name}: {errors}")
    assert max(errors.values()) < TOLERANCE
    return errors


def test_every_layer_of_every_type_gives_darknets_numbers(libdarknet, tmp_path):
    check(libdarknet, tmp_path, network(), every_layer=True)


@pytest.mark.parametrize("size", [(32, 48), (64, 32), (48, 80)])
def test_other_input_sizes_give_darknets_numbers(libdarknet, tmp_path, size):
    check(libdarknet, tmp_path, network(seed=3).with_input_size(*size), every_layer=True)


SMALL = ["cifar.test", "go", "tiny", "writing"]
RECURRENT = ["gru", "rnn", "rnn.train"]
LARGE = sorted(path.stem for path in CFGS.glob("*.cfg") if path.stem not in (*SMALL, *RECURRENT))


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_every_layer_of_a_published_network_gives_darknets_numbers(libdarknet, name):
    found = row(libdarknet, published(name))
    assert found.layers > 1
    assert found.worst[0] < TOLERANCE


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_networks_are_refused_by_name(name):
    with pytest.raises(CfgError, match=r"\[(rnn|gru)\]: recurrent layers are not converted"):
        read_network(published(name))


@pytest.mark.parametrize(
    "name",
    [
        "yolov2-tiny",
        "yolov3-tiny",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("yolov2-tiny-voc", "yolov2-voc")),
    ],
)
def test_larger_networks_give_darknets_numbers_on_small_images(libdarknet, tmp_path, name):
    """The same layers and weights as at full size, which the slow tests run."""
    net = read_network(published(name)).with_input_size(96, 160).with_random_weights(1)
    check(libdarknet, tmp_path, net, every_layer=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"{YOLO_FASTEST}.cfg", f"{YOLO_FASTEST}-xl.cfg"])
def test_larger_networks_give_darknets_numbers(libdarknet, tmp_path, name):
    net = read_network(published(name), dialect="pjreddie").with_random_weights(1)
    check(libdarknet, tmp_path, net, every_layer=True)


@pytest.mark.parametrize("name", [YOLO_FASTEST, f"{YOLO_FASTEST}-xl"])
def test_trained_weights_give_darknets_numbers(libdarknet, tmp_path, name):
    net = read_network(published(f"{name}.cfg"), published(f"{name}.weights"), dialect="pjreddie")
    check(libdarknet, tmp_path, net, weights=SHARED / f"{name}.weights", every_layer=True)


def test_darknet_gives_the_identical_output_for_written_files(libdarknet, tmp_path):
    net = network()
    write_darknet(net, tmp_path / "a.cfg", tmp_path / "a.weights")
    again = read_network(tmp_path / "a.cfg", tmp_path / "a.weights")
    write_darknet(again, tmp_path / "b.cfg", tmp_path / "b.weights")
    x = image(net)[0]
    with libdarknet.load(tmp_path / "a.cfg", tmp_path / "a.weights") as oracle:
        expected = oracle.predict(x)
    with libdarknet.load(tmp_path / "b.cfg", tmp_path / "b.weights") as oracle:
        np.testing.assert_array_equal(oracle.predict(x), expected)
        assert oracle.input_size == (32, 48)
        assert oracle.layer_shape(17) == net.layers[17].dims
