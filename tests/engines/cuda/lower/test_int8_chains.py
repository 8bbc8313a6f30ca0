"""Chains of INT8 layers, and a network with some of them in float again, beside the quantize pass that left these out."""

import json

import numpy as np
import pytest

from pytrtplugins.engines.cuda.lower.int8_chains import int8_chains, with_float_chains
from pytrtplugins.engines.cuda.settings import PLACEMENT
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.passes.quantize import FLOAT_LAYERS
from tests.engines.cuda.recurrent import language_model, scales, text_recognizer
from tests.engines.operators import literal
from tests.passes.nets import Net, Swap, calibrated, image, ones, run

REASON = "the network is faster with it in float16"


def plain():
    """Four layers: codes go from each to the next, and the last one stays in float."""
    net = Net(channels=8)
    x = "data"
    for name in "abcd":
        x = net.conv(x, name, 8)
    return net.model(x)


def residual():
    """A block whose addition reads codes."""
    net = Net(channels=8)
    first = net.conv("data", "first", 8)
    added = net.add("Add", [net.conv(first, "second", 8, leaky=False), first], "added")
    return net.model(net.conv(net.conv(net.add("Relu", [added], "acted"), "third", 8), "last", 4))


def parted():
    """Two chains of the same form with a node in float behind each, and a third one of another form."""
    net = Net(channels=8)
    x = net.add("Softmax", [net.conv(net.conv("data", "a", 8), "b", 8)], "first_head", axis=1)
    x = net.add("Softmax", [net.conv(net.conv(x, "c", 8), "d", 8)], "second_head", axis=1)
    return net.model(net.conv(net.conv(x, "e", 16), "last", 4))


def gated():
    """A block with squeeze-and-excitation: its gate is in float, and so is what is multiplied by it."""
    net = Net(channels=8)
    x = net.conv("data", "depthwise", 8, group=8)
    gate = net.add(
        "Sigmoid", [net.conv(net.add("GlobalAveragePool", [x], "mean"), "squeeze", 8, 1, leaky=False)], "gate"
    )
    x = net.conv(net.add("Mul", [x, gate], "scaled"), "project", 8, 1)
    return net.model(net.conv(x, "last", 4))


def swapped():
    """A plugin that moves codes between layers."""
    net = Net(channels=8)
    x = net.plugin(Swap(), net.conv(net.conv("data", "a", 8), "b", 8), "swap")
    return net.model(net.conv(net.conv(x, "c", 8), "last", 4))


def swish():
    """An activation of two nodes between layers."""
    net = Net(channels=8)
    x = net.conv("data", "a", 8, leaky=False)
    x = net.add("Mul", [x, net.add("Sigmoid", [x], "a_sigmoid")], "a_swish")
    return net.model(net.conv(net.conv(x, "b", 8), "last", 4))


def copied():
    """Layers that read codes through operators that only copy values; both read the same."""
    net = Net(channels=8)
    x = net.conv("data", "a", 8)
    x = net.add("Transpose", [net.add("Identity", [x], "same")], "turned", 8, perm=[0, 1, 3, 2])
    both = net.add("Concat", [net.conv(x, "b", 4), net.conv(x, "c", 4)], "both", 8, axis=1)
    return net.model(net.conv(both, "last", 4))


def both(make, calibrate=calibrated):
    """The float model and its quantized form, prepared, and the table."""
    model = prepare(make())
    table = calibrate(model)
    return model, quantize(model, table), table


@pytest.mark.parametrize(
    ("make", "layers"),
    [
        (plain, [("a", "b", "c")]),
        (residual, [("first", "second", "third")]),
        (parted, [("a", "b"), ("c", "d"), ("e",)]),
        (gated, [("depthwise",), ("project",)]),
        (swish, [("a", "b")]),
        (copied, [("a", "b", "c")]),
    ],
)
def test_a_chain_ends_where_its_tensors_are_floats(make, layers):
    assert [chain.layers for chain in int8_chains(both(make)[1])] == layers


def test_a_float_model_has_no_chains():
    assert int8_chains(prepare(plain())) == ()


def test_chains_of_the_same_operators_and_dims_have_the_same_form():
    first, second, third = int8_chains(both(parted)[1])
    assert first.form == second.form != third.form


def operators(model):
    return sorted(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("make", [plain, residual, parted, gated, swish, copied])
@pytest.mark.parametrize("which", ["first", "last", "all"])
def test_a_chain_in_float_is_as_if_the_quantize_pass_had_left_it_out(make, which):
    model, quantized, table = both(make)
    chains = {"first": slice(1), "last": slice(-1, None), "all": slice(None)}[which]
    chosen = int8_chains(quantized)[chains]
    before = quantized.SerializeToString(deterministic=True)
    mixed = with_float_chains(quantized, model, chosen, REASON)
    assert quantized.SerializeToString(deterministic=True) == before
    layers = [name for chain in chosen for name in chain.layers]
    wanted = quantize(model, table, exclude=layers)
    assert operators(mixed) == operators(wanted)
    assert {tensor.name for tensor in mixed.graph.initializer} == {tensor.name for tensor in wanted.graph.initializer}
    x = image(model)
    outputs = [info.name for info in model.graph.output]
    found, expected = (run(prepare(each), x, outputs) for each in (mixed, wanted))
    for name in outputs:
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_chain_goes_through_a_plugin_that_moves_codes():
    model, quantized, table = both(swapped, ones)
    (chain,) = int8_chains(quantized)
    assert chain.layers == ("a", "b", "c")
    mixed = with_float_chains(quantized, model, [chain], REASON)
    assert operators(mixed) == operators(quantize(model, table, exclude=chain.layers)) == operators(model)


@pytest.mark.parametrize(
    ("make", "layers"),
    [(text_recognizer, [("features", "first", "embedded", "second")]), (language_model, [("- state", "again")])],
)
def test_recurrent_layers_are_in_chains(make, layers):
    model, inputs = make()
    model = prepare(model)
    table = scales(model, inputs)
    quantized = quantize(model, table, placement=PLACEMENT)
    chains = int8_chains(quantized)
    assert [chain.layers for chain in chains] == layers
    for chain in chains:
        mixed = with_float_chains(quantized, model, [chain], REASON)
        wanted = quantize(model, table, placement=PLACEMENT, exclude=chain.layers)
        assert operators(mixed) == operators(wanted)
        np.testing.assert_array_equal(*(literal(each, inputs) for each in (mixed, wanted)))


def test_the_model_says_why_a_layer_is_in_float():
    model, quantized, _ = both(parted)
    mixed = with_float_chains(quantized, model, int8_chains(quantized)[:1], REASON)
    (text,) = [entry.value for entry in mixed.metadata_props if entry.key == FLOAT_LAYERS]
    assert json.loads(text) == {
        "last": "last layer before the outputs (float_last)", "a": REASON, "b": REASON,
    }  # fmt: skip
