"""caffe files read back: the same network as `to_onnx` gives, with its plugins."""

import json

import numpy as np
import onnx
import pytest

from darknet2caffe import plugin_factory, read_network, to_caffe, to_onnx
from darknet2caffe.from_caffe import from_caffe
from darknet2caffe.plugin_factory import PluginFactory, RegistryFactory
from pytrtplugins import plugin
from pytrtplugins.errors import RegistryError
from pytrtplugins.models.heads import read_heads
from pytrtplugins.plugin.registry import PluginKey, registered
from tests.darknet2caffe.caffe import ShuffleChannel, write_caffe
from tests.darknet2caffe.networks import SHARED, image, network, published, run
from tests.darknet2caffe.test_to_caffe import ACTIVATIONS, EXPRESSIBLE, FORK_ACTIVATIONS, FORK_LAYERS, LAYERS, small
from tests.measures import relative_error

HEADS = (
    "[reorg]\nstride=2\n[conv]\nfilters=16\nactivation=linear\n[region]\nclasses=3\nnum=2\nanchors=1,2,.3,4\nsoftmax=1\n"
    "[route]\nlayers=1\n[yolo]\nclasses=3\nnum=3\nmask=0,2\nanchors=1,2,3,4,5,6\n"
)
SAME = {
    **{
        name: LAYERS[name]
        for name in (
            *("deconvolution", "connected", "connected then a map", "batchnorm", "batchnorm in place of nothing"),
            *("logistic", "upsample", "upsample reverse", "cost", "nobody reads a layer"),
        )
    },
    "heads": HEADS,
    "a classifier": f"{EXPRESSIBLE}[avgpool]\n[softmax]\n",
    "an output that another layer gives": "[conv]\n[conv]\nfilters=2\n[route]\nlayers=0\n",
    **{kind: f"[conv]\nbatch_normalize=1\nactivation={kind}\n" for kind in ("leaky", "relu", "logistic", "tanh")},
    **{f"{kind} alone": f"[conv]\n[activation]\nactivation={kind}\n" for kind in ("elu", "relie", "linear")},
}


def round_trip(net, folder, **options):
    return from_caffe(*to_caffe(net, folder / "a", **options))


def assert_same_network(found, expected):
    """Node by node, weight by weight; the dialect alone is not in caffe's files."""
    assert [str(node) for node in found.graph.node] == [str(node) for node in expected.graph.node]
    weights = [
        {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        for model in (found, expected)
    ]
    assert weights[0].keys() == weights[1].keys()
    for name, array in weights[1].items():
        assert (weights[0][name].dtype, weights[0][name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(weights[0][name], array)
    assert list(found.graph.input) == list(expected.graph.input)
    assert list(found.graph.output) == list(expected.graph.output)
    known = {value.name: value for value in found.graph.value_info}
    assert all(known[value.name] == value for value in expected.graph.value_info)
    assert found.opset_import == expected.opset_import
    assert (found.graph.name, found.ir_version) == (expected.graph.name, expected.ir_version)


def test_only_a_network_with_heads_is_described_for_detectors(tmp_path):
    plain = round_trip(small("[conv]\n"), tmp_path)
    assert [entry.key for entry in plain.metadata_props if entry.key == "darknet.net"] == []
    described = round_trip(small(HEADS), tmp_path)
    (facts,) = [json.loads(entry.value) for entry in described.metadata_props if entry.key == "darknet.net"]
    assert sorted(facts) == ["channels", "heads", "height", "width"]
    assert [head["type"] for head in facts["heads"]] == ["region", "yolo"]


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("name", SAME)
def test_what_caffe_has_a_layer_for_comes_back_as_it_went(tmp_path, name, fold):
    net = small(SAME[name])
    assert_same_network(round_trip(net, tmp_path, fold=fold), to_onnx(net, fold=fold))


@pytest.mark.parametrize("options", [{"batch": 3}, {"input_size": (24, 16)}, {"activation": "relu"}])
@pytest.mark.parametrize("bn_eps", ["darknet-cpu", "darknet-gpu"])
def test_options_come_back_too(tmp_path, options, bn_eps):
    net = small(SAME["a classifier"])
    options = {**options, "bn_eps": bn_eps, "fold": False}
    assert_same_network(round_trip(net, tmp_path, **options), to_onnx(net, **options))


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("name", ["tiny", "data/pretrained/yolo-fastest-1.1.cfg"])
def test_published_networks_come_back_as_they_went(tmp_path, name, fold):
    net = read_network(published(name), dialect="pjreddie").with_random_weights(2)
    assert_same_network(round_trip(net, tmp_path, fold=fold), to_onnx(net, fold=fold))


def test_trained_weights_come_back_as_they_went(tmp_path):
    name = "data/pretrained/yolo-fastest-1.1"
    net = read_network(published(f"{name}.cfg"), SHARED / f"{name}.weights")
    assert_same_network(round_trip(net, tmp_path), to_onnx(net))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolov2-voc", "yolov3", "darknet53", "vgg-16", "resnet50"])
def test_larger_networks_come_back_as_they_went(tmp_path, name):
    net = read_network(published(name)).with_random_weights(2)
    if name not in ("vgg-16", "resnet50"):  # their [crop] and [shortcut] are several layers of caffe's
        assert_same_network(round_trip(net, tmp_path, fold=False), to_onnx(net, fold=False))
        return
    x, found, expected = image(net), round_trip(net, tmp_path), to_onnx(net)
    output = expected.graph.output[0].name
    assert relative_error(run(found, x)[output], run(expected, x)[output]) < 1e-6


CASES = {
    **{name: (layers, "auto") for name, layers in LAYERS.items()},
    **{name: (layers, "alexeyab") for name, layers in FORK_LAYERS.items()},
    **{
        kind: (f"[conv]\nfilters=8\nbatch_normalize=1\nactivation={kind}\n", "alexeyab")
        for kind in (*ACTIVATIONS, *FORK_ACTIVATIONS)
    },
}


@pytest.mark.parametrize("name", CASES)
def test_everything_that_was_written_gives_the_same_numbers(tmp_path, name):
    net = small(*CASES[name])
    x, found, expected = image(net, batch=2), round_trip(net, tmp_path, batch=2), to_onnx(net, batch=2)
    assert [value.name for value in found.graph.output] == [value.name for value in expected.graph.output]
    onnx.checker.check_model(found, full_check=True)
    got, wanted = run(found, x), run(expected, x)
    for value in expected.graph.output:
        assert got[value.name].shape == wanted[value.name].shape
        assert relative_error(got[value.name], wanted[value.name]) < 1e-6


def test_every_layer_of_a_large_network_gives_the_same_numbers(tmp_path):
    net = network()
    x, outputs = image(net), [layer.name for layer in net.outputs]
    found = from_caffe(*to_caffe(net, tmp_path / "a"), outputs=outputs)
    assert [value.name for value in found.graph.output] == outputs
    got, wanted = run(found, x), run(to_onnx(net), x)
    for layer in net.layers:
        name = net.tensor_name(layer.index)
        assert relative_error(got[name], wanted[name]) < 1e-6, name


def test_the_registered_plugins_are_created_for_their_layer_types(tmp_path):
    net = small(HEADS)
    model = round_trip(net, tmp_path)
    from pytrtplugins.plugin.onnx_node import from_node

    created = [from_node(node) for node in model.graph.node if node.domain]
    assert created == [net.layers[index].plugin for index in (0, 2, 4)]
    facts = [json.loads(made.metadata_props[0].value) for made in (model, to_onnx(net))]
    assert facts[1].pop("dialect") == "pjreddie"
    assert facts[0] == facts[1]
    assert [head.type for head in read_heads(model)] == ["region", "yolo"]


def test_the_packages_own_layers_in_cpp_make_no_name_ambiguous(tmp_path, monkeypatch):
    keys = registered()
    native = [PluginKey("native", key.name, "1") for key in keys if key.namespace == "darknet"]
    monkeypatch.setattr(plugin_factory, "registered", lambda: (*native, *keys))
    assert {node.domain for node in round_trip(small(HEADS), tmp_path).graph.node} == {"", "darknet"}


SHUFFLED = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 6 dim: 2 dim: 2 } } }
layer {
  name: "shuffle"  type: "%s"
  bottom: "data"  top: "shuffle"
  shuffle_channel_param { %s }
}
"""


def test_a_plugin_of_the_layers_type_is_created_with_its_parameters(tmp_path):
    files = write_caffe(tmp_path, SHUFFLED % ("ShuffleChannel", 'group: 3 names: "a" whole: true'))
    model = from_caffe(*files)
    x = np.arange(24, dtype=np.float32).reshape(1, 6, 2, 2)
    expected = ShuffleChannel(3, ("a",), True)
    np.testing.assert_array_equal(run(model, x)["shuffle"], expected.compute(x))
    assert model.graph.node[0].domain == "tests.from_caffe"
    assert {item.domain for item in model.opset_import} == {"", "tests.from_caffe"}


def test_a_factory_of_ones_own_is_asked_first(tmp_path):
    asked, made = [], []

    class Shuffles:
        def is_plugin(self, layer_type):
            asked.append(layer_type)
            return layer_type in ("Shuffle", "Reorg", "ReLU")

        def create_plugin(self, layer_type, parameters):
            made.append((layer_type, parameters))
            return ShuffleChannel(group=parameters["groups"][0])

    assert isinstance(Shuffles(), PluginFactory)
    for layer_type in ("Shuffle", "Reorg", "ReLU"):
        files = write_caffe(
            tmp_path, SHUFFLED % (layer_type, "groups: 2 groups: 3 way: DOWN inner { a: 1 }"), shuffle=[[1, 2]]
        )
        model = from_caffe(*files, plugin_factory=Shuffles())
        assert model.graph.node[0].op_type == "ShuffleChannel"
        assert asked.pop() == layer_type
        found, parameters = made.pop()
        np.testing.assert_array_equal(parameters.pop("blobs")[0], [1, 2])
        assert (found, parameters) == (layer_type, {"groups": [2, 3], "way": "DOWN", "inner": {"a": 1}})


def test_a_factory_that_does_not_know_the_type_leaves_it_to_the_registered_plugins(tmp_path):
    class Nothing:
        def is_plugin(self, layer_type):
            return False

        def create_plugin(self, layer_type, parameters):
            raise NotImplementedError

    net = small(HEADS)
    model = from_caffe(*to_caffe(net, tmp_path / "a"), plugin_factory=Nothing())
    assert_same_network(model, to_onnx(net))


def test_two_plugins_of_one_name_are_not_chosen_from():
    for namespace in ("tests.one", "tests.two"):
        plugin(namespace=namespace, name="TwiceNamed")(type("TwiceNamed", (ShuffleChannel,), {}))
    factory = RegistryFactory()
    assert factory.is_plugin("TwiceNamed")
    assert not factory.is_plugin("Convolution")
    with pytest.raises(RegistryError, match=r"tests\.one.*tests\.two"):
        factory.create_plugin("TwiceNamed", {})
    with pytest.raises(RegistryError, match="NeverNamed"):
        factory.create_plugin("NeverNamed", {})
