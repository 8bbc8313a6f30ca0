"""What cannot be found or does not fit is refused, with what is near and what to do."""

import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import DimsError, ModelError, UsageError
from pytrtplugins.layers import Reorg
from pytrtplugins.model.decompose import add_functions
from tests.model.networks import Codes, Join, Line, Shuffle, conv_net, network, node, shape, small, weights


@pytest.mark.parametrize(
    ("name", "message", "near"),
    [
        ("negatve", r"2 nodes has the name 'negatve'.\nNear: 'negative'.\nDo: print", ["negative"]),
        ("Neg", "Near: 'negative'", ["negative"]),  # of an operator
        ("ative", "Near: 'negative'", ["negative"]),
        ("", "The first are 'relu', 'negative'", []),
    ],
)
def test_an_unknown_node_is_answered_with_near_ones_or_the_first(name, message, near):
    with pytest.raises(ModelError, match=message) as caught:
        small().replace(name, Line())
    assert caught.value.near == near


@pytest.mark.parametrize("name", ["Line", "tests.graph::Line"])
def test_nodes_of_a_plugin_are_near_its_type_with_and_without_its_domain(name):
    graph = small()
    graph.replace("relu", Line(2))
    with pytest.raises(ModelError) as caught:
        graph.replace(name, Line())
    assert caught.value.near == ["relu"]


@pytest.mark.parametrize(
    "edit", [lambda g: g.insert_after("aa", Line()), lambda g: g.replace("relu", Line(), inputs=["aa"])]
)
def test_an_unknown_tensor_is_answered_with_near_ones(edit):
    with pytest.raises(ModelError, match=r"3 tensors has the name 'aa'.\nNear: 'a'"):
        edit(small())


def test_nodes_without_names_of_their_own_are_found_by_what_they_write():
    graph = ptp.load_onnx(
        network([node("Relu", "x", "a", "same"), node("Neg", "a", "b", "same"), node("Neg", "b", "y")])
    )
    with pytest.raises(
        ModelError, match=r"2 nodes have the name 'same'.\nDo: name one by a tensor that it writes: 'a', 'b'"
    ):
        graph.replace("same", Line())
    graph.replace("b", Line(2))
    graph.replace("y", Line(3))
    assert [info.type for info in graph.nodes] == ["Relu", *["tests.graph::Line"] * 2]
    assert [info.name for info in graph.nodes] == ["same", "Line", "Line_1"]


def test_a_class_is_not_a_plugin():
    with pytest.raises(UsageError, match=r"'relu' \(Relu\): expected a plugin, such as Reorg\(stride=2\)"):
        small().replace("relu", Line)


def test_a_plugin_with_several_outputs_needs_names_for_them():
    graph = ptp.load_onnx(network([node("Add", "x x", "y", "add")]))
    with pytest.raises(ModelError, match=r"gives 2 outputs, and there are 1 to write: 'y'.\nDo: .*2 names"):
        graph.replace("add", Join())
    with pytest.raises(ModelError, match="'x' is not a free name"):
        graph.replace("add", Join(), outputs=["y", "x"])
    with pytest.raises(ModelError, match="'y' is read, and the plugin would not write it"):
        graph.replace("add", Join(), outputs=["p", "q"])
    with pytest.raises(DimsError, match="takes 2 inputs, and there are 1"):
        graph.insert_after("x", Join())
    graph.replace("add", Join(), outputs=["y", "rest"])


def test_only_one_output_can_stand_for_a_tensor():
    nodes, constants = conv_net([node("Relu", "a", "b")])
    graph = ptp.load_onnx(network(nodes, **constants))

    @ptp.plugin(namespace="tests.graph")
    class Twins(ptp.Plugin):
        """Two of one."""

        def output_dims(self, x):
            return x, x

        def compute(self, x):
            return x.copy(), x.copy()

    with pytest.raises(ModelError, match=r"after 'a': Twins\(\) has 2 outputs"):
        graph.insert_after("a", Twins())


def test_an_output_that_is_read_cannot_be_lost():
    graph = ptp.load_onnx(network([node("Split", "x", "a b", "split", axis=1, num_outputs=2), node("Add", "a b", "y")]))
    with pytest.raises(ModelError, match="gives 1 output, and there are 2 to write: 'a', 'b'"):
        graph.replace("split", Line())


def test_a_plugin_cannot_read_what_follows_from_it():
    with pytest.raises(ModelError, match=r"'relu': its inputs \['y'\] are computed from what it writes"):
        small().replace("relu", Line(), inputs=["y"])


def test_nothing_fits_between_an_input_and_the_same_output():
    with pytest.raises(ModelError, match="an input and an output"):
        ptp.load_onnx(network([node("Neg", "x", "y")], outputs="y x")).insert_after("x", Line())


def test_dims_that_the_plugin_refuses_name_the_place():
    with pytest.raises(DimsError, match=r"'relu' \(Relu\): channels must be a multiple of 3, found 4"):
        small().replace("relu", Shuffle(3))
    with pytest.raises(DimsError, match="after 'a': channels"):
        small().insert_after("a", Shuffle(3))


def test_elements_of_a_type_that_an_operator_cannot_take_are_refused():
    graph = ptp.load_onnx(
        network([node("Relu", "x", "a", "relu"), node("Conv", "a k", "y", "conv")], k=weights(3, 4, 1, 1))
    )
    with pytest.raises(ModelError, match=r"Codes.*; node 'conv' \(Conv\) cannot take 'a' .*tensor\(int32\)"):
        graph.replace("relu", Codes())
    assert [info.type for info in graph.nodes] == ["Relu", "Conv"]


def test_a_local_function_of_the_plugins_name_is_not_given_to_it():
    model = add_functions(network([node("Relu", "x", "a", "relu"), Reorg(2).as_node(["a"], ["y"], "reorg")]))
    graph = ptp.load_onnx(model)
    with pytest.raises(
        ModelError, match=r"darknet::Reorg is also a local function of the model, which node 'reorg' uses"
    ):
        graph.insert_after("y", Reorg(1))
    with pytest.raises(ModelError, match="within 'Reorg'"):
        graph.replace(model.functions[0].node[-1].name, Line())
    graph.replace("reorg", Reorg(1))
    assert not graph.model.functions
    assert shape(graph, "y") == ["N", "4", "6", "6"]
