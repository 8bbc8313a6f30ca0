"""Which nodes TensorRT for RTX computes together, and on which types, as its list of layers says."""

import numpy as np
import pytest

from benchmarks.tensorrt_builds.subjects import load_darknet
from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.passes import prepare

from .rtx_builds import build_on_rtx, needs_rtx, types
from .small_networks import path_of

pytestmark = needs_rtx


@pytest.fixture
def built(tmp_path):
    """Build a small network in a precision."""

    def build(name, precision="fp32", **options):
        model = prepare(load_darknet(path_of(name, tmp_path)))
        tensors = [model.graph.input[0].name, *(tensor for node in model.graph.node for tensor in node.output)]
        table = CalibrationTable(dict.fromkeys(tensors, np.float32(0.05)))
        return build_on_rtx(model, precision, calibration=table if precision in ("int8", "fp8") else None, **options)

    return build


def layers_of(build, node):
    """The layers that compute a node, or a part of it."""
    return [layer for layer in build.layers if node in layer.nodes]


def codes(name):
    return name.endswith(("_QuantizeLinear", "_DequantizeLinear"))


def test_a_convolution_its_residual_and_their_activation_are_one_layer(built):
    (layer,) = layers_of(built("residual"), "2_convolutional")
    assert set(layer.nodes) == {"2_convolutional", "3_shortcut.linear", "3_shortcut"}


def test_a_convolution_and_its_leaky_relu_are_one_layer(built):
    (layer,) = layers_of(built("residual"), "1_convolutional.linear")
    assert set(layer.nodes) == {"1_convolutional.linear", "1_convolutional"}


@pytest.mark.parametrize("name", ["residual", "branches"])
def test_in_int8_each_quantization_is_part_of_the_kernel_before_it(built, name):
    build = built(name, "int8")
    alone = [layer for layer in build.layers if layer.nodes and all(map(codes, layer.nodes))]
    assert alone == []
    assert not [layer for layer in layers_of(build, "data_quantized_QuantizeLinear") if layer.kind != "kgen"]


def test_in_int8_a_pool_and_a_plugin_that_only_move_values_move_codes(built):
    build = built("branches", "int8")
    for node in ("1_maxpool", "5_reorg"):
        (layer,) = layers_of(build, node)
        assert types(layer.inputs) == types(layer.outputs) == ["Int8"]


def test_in_fp8_the_pool_and_the_plugin_stay_in_float_and_the_quantization_stands_behind_them(built):
    build = built("branches", "fp8")
    for node in ("1_maxpool", "5_reorg"):
        (layer,) = layers_of(build, node)
        assert types(layer.inputs) == types(layer.outputs) == ["Float"]
        (quantized,) = [
            layer for layer in layers_of(build, f"{node}_quantized_QuantizeLinear") if "FP8" in types(layer.outputs)
        ]
        assert types(quantized.inputs) == ["Float"]


def test_a_plugin_that_is_decomposed_is_no_layer_of_its_own(built):
    assert [layer.nodes for layer in built("branches").plugins()] == [("5_reorg",)]
    assert built("branches", plugins={"darknet::Reorg": "decomposition"}).plugins() == []
