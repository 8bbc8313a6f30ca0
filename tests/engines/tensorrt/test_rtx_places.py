"""TensorRT for RTX builds every plugin in every place of a network; types and layouts are read from the builder's list of layers."""

import pytest

from pytrtplugins.errors import DimsError, ModelError
from pytrtplugins.tensor import DType, TensorDesc
from tests.engines.plugin_models import PLACES, REFUSED

from .plugin_cases import CASES, network
from .rtx_builds import build_on_rtx, needs_rtx, types

pytestmark = needs_rtx
HALF = {"fp16": ("Half", DType.FLOAT16), "bf16": ("BFloat16", DType.BFLOAT16)}
WITH_WORKSPACE = ("BatchedNms", "MeanAndRest")
"""Plugins whose workspace the builder lists as a last output, of type UInt8."""
STAYS_FLOAT = ("BatchedNms",)
"""Plugins that take half precision, and stay in float32: they have outputs of int32, and `to_half` takes them as a whole or not at all."""

NOT_COMPUTED = "gives what nobody reads"


@pytest.mark.parametrize("place", [place for place in PLACES if place != NOT_COMPUTED])
def test_a_plugin_in_each_place_is_a_layer_of_its_own(place):
    model, expected = PLACES[place]
    built = build_on_rtx(model)
    names = {node.name for node in model.graph.node if node.domain}
    assert {name for layer in built.plugins() for name in layer.nodes if name in names} == names
    for layer in built.plugins():
        assert {tensor.dtype for tensor in (*layer.inputs, *layer.constants, *layer.outputs)} == {"Float"}
        assert {tensor.layout for tensor in (*layer.inputs, *layer.outputs)} == {"Linear"}
    assert [desc.name for desc in built.engine.outputs] == list(expected)


def test_a_plugin_that_nobody_reads_is_no_layer():
    assert build_on_rtx(PLACES[NOT_COMPUTED][0]).plugins() == []


@pytest.mark.parametrize("place", REFUSED)
def test_what_no_plugin_node_may_have_is_refused_with_its_name(place):
    model, words = REFUSED[place]
    with pytest.raises((DimsError, ModelError), match=f"node 'plugin': .*{words}"):
        build_on_rtx(model)


@pytest.mark.parametrize("name", CASES)
def test_each_plugin_reads_inputs_of_the_model_and_gives_its_outputs(name):
    case = CASES[name]
    layer = build_on_rtx(network(case)).plugin()
    assert types(layer.inputs) == ["Int32" if index in case.integers else "Float" for index in range(len(case.dims))]
    assert [tensor.dims for tensor in layer.inputs] == list(case.dims)
    outputs = [tuple(dims) for dims in case.plugin.all_output_dims(case.dims)]
    assert [tensor.dims for tensor in layer.outputs[: len(outputs)]] == outputs
    assert [tensor.dtype for tensor in layer.outputs[len(outputs) :]] == ["UInt8"] * (name in WITH_WORKSPACE)


@pytest.mark.parametrize("name", CASES)
def test_each_plugin_stands_between_operators(name):
    built = build_on_rtx(network(CASES[name], around=True, twice=True))
    assert len(built.plugins()) == 1
    nodes = {node for layer in built.layers for node in layer.nodes}
    assert {node.name for node in built.engine.model.graph.node if node.op_type in ("Relu", "Neg")} <= nodes


@pytest.mark.parametrize(
    ("name", "constant"),
    [(name, index) for name, case in CASES.items() if len(case.dims) > 1 for index in range(len(case.dims))],
)
def test_each_input_may_be_an_initializer(name, constant):
    case = CASES[name]
    layer = build_on_rtx(network(case, constant=constant)).plugin()
    assert len(layer.inputs) == len(case.dims) - 1
    assert case.dims[constant] in [tensor.dims for tensor in layer.constants]


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if name != "Everything" and len({dims[0] for dims in case.dims}) == 1]
)
def test_each_plugin_takes_a_free_batch(name):
    case = CASES[name]
    size = case.dims[0][0]
    built = build_on_rtx(network(case, around=True, batch="N"), settings={"batch": (size, size, 4 * size)})
    layer = built.plugin()
    assert {tensor.dims[0] for tensor in layer.inputs} == {-1}
    assert [tensor.dims[1:] for tensor in layer.inputs] == [dims[1:] for dims in case.dims]


@pytest.mark.parametrize("precision", HALF)
@pytest.mark.parametrize("name", CASES)
def test_each_plugin_computes_in_half_precision_where_it_takes_that(name, precision):
    case = CASES[name]
    word, dtype = HALF[precision]
    layer = build_on_rtx(network(case, around=True), precision).plugin()
    descs = [
        TensorDesc(f"t{index}", dims, DType.INT32 if index in case.integers else dtype)
        for index, dims in enumerate(case.dims)
    ]
    takes = name not in STAYS_FLOAT and all(case.plugin.supports_format(index, descs) for index in range(len(descs)))
    expected = word if takes else "Float"
    assert types(layer.inputs) == ["Int32" if index in case.integers else expected for index in range(len(case.dims))]
