"""A table that lacks tensors leaves the layers in float that need them, and no others."""

import pytest

from pytrtplugins.engines.onnxruntime.engine import PLACEMENT
from pytrtplugins.model.ir import to_ir
from pytrtplugins.passes import Placement, prepare, quantize, quantized_tensors
from pytrtplugins.passes.unscaled_layers import unscaled_layers
from tests.passes import nets

PLACEMENTS = [Placement(), PLACEMENT]


def without(table, *names):
    return {name: scale for name, scale in table.items() if name not in names}


@pytest.mark.parametrize("placement", PLACEMENTS, ids=["tensorrt", "onnxruntime"])
def test_a_whole_table_leaves_no_layer(placement):
    model = prepare(nets.tiny_yolo())
    assert unscaled_layers(to_ir(model), nets.calibrated(model), placement=placement) == {}


def test_the_layers_that_read_a_tensor_stay():
    model = prepare(nets.tiny_yolo())
    table = nets.calibrated(model)
    assert unscaled_layers(to_ir(model), without(table, "data")) == {"a": "data"}
    assert unscaled_layers(to_ir(model), without(table, "a_leaky")) == {"b": "a_leaky"}  # through MaxPool


def test_all_readers_of_a_concatenation_stay():
    model = prepare(nets.tiny_yolo())
    found = unscaled_layers(to_ir(model), without(nets.calibrated(model), "b_leaky"))
    assert found == {"c": "b_leaky", "d": "b_leaky"}


@pytest.mark.parametrize("placement", PLACEMENTS, ids=["tensorrt", "onnxruntime"])
def test_the_others_are_quantized_whichever_tensor_is_missing(placement):
    model = prepare(nets.tiny_yolo())
    table = nets.calibrated(model)
    for name in quantized_tensors(to_ir(model), placement=placement):
        partial = without(table, name)
        excluded = unscaled_layers(to_ir(model), partial, placement=placement)
        assert excluded
        needed = quantized_tensors(to_ir(model), placement=placement, exclude=tuple(excluded))
        assert name not in needed
        assert needed
        quantize(model, type(table)(partial), placement=placement, exclude=tuple(excluded))
