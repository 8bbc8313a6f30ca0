"""What the benchmark of TensorRT's builds reads in the builder's log, and what it writes."""

import onnx
import pytest

from benchmarks.node_tests import CRASHED, PASSED, REFUSED, Outcome
from benchmarks.pages import builds
from benchmarks.tensorrt_builds.build import Build, recorded
from benchmarks.tensorrt_builds.layer_list import Layer, Tensor, has_layers, read_layers
from benchmarks.tensorrt_builds.outcomes import faults, record
from benchmarks.tensorrt_builds.products import Products, count_products
from benchmarks.tensorrt_builds.reasons import BUILDER, PACKAGE, PARSER, general_reason, refused_by
from benchmarks.tensorrt_builds.subjects import Subject, find_files

LINE = (
    "Name: 0_conv_myl0_1, LayerType: correlation, Inputs: [ { Name: a_2, Dimensions: [1,4,8,8], Strides: [256,1,32,4], "
    "StrideOrder: [3,0,2,1], Datatype: Int8, Format: (NHWC) Channel major format }], Constants: [ { Name: w, "
    "Dimensions: [8,4,3,3], Strides: [36,1,12,4], StrideOrder: [3,0,2,1], Datatype: Int8, Format: (NHWC) Channel major format }, "
    "{ Name: s, Dimensions: [], Strides: [], StrideOrder: [], Datatype: Float, Format: (Linear) Row major linear format }], "
    "Outputs: [ { Name: y, Dimensions: [1,8,8,8], Strides: [512,64,8,1], StrideOrder: [3,2,1,0], Datatype: Float, "
    "Format: (Linear) Row major linear format }], TacticName: __stub, StreamId: 0, Metadata: [ONNX Layer: conv]\x1f[ONNX Layer: dq]"
)
SIGNAL = "Name: entry^signal, LayerType: signal, Inputs: [], Outputs: [], TacticName: , StreamId: 0, Metadata: "


def test_a_list_of_layers_is_read():
    message = f"TensorRT: Layers:\n{LINE}\n{SIGNAL}\n\nBindings:\nx"
    assert has_layers(message)
    layer, signal = read_layers(message)
    assert (layer.name, layer.kind, layer.nodes) == ("0_conv_myl0_1", "correlation", ("conv", "dq"))
    assert layer.inputs == (Tensor("a_2", (1, 4, 8, 8), "Int8", "NHWC"),)
    assert [tensor.dims for tensor in layer.constants] == [(8, 4, 3, 3), ()]
    assert layer.outputs == (Tensor("y", (1, 8, 8, 8), "Float", "Linear"),)
    assert signal == Layer("entry^signal", "signal", (), (), (), ())
    assert not has_layers("TensorRT: Layers of the network: 3")


QUANTIZED = """<ir_version: 10, opset_import: ["": 19]> g (float[1,4,8,8] x, float[4,4,1,1] v) => (float[1,4,2,2] y)
    <float s = {1.0}, int8[4,4,1,1] w = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}>
    { q = QuantizeLinear (x, s) d = DequantizeLinear (q, s) e = DequantizeLinear (w, s)
      [first] a = Conv (d, e) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d)
      [second] b = Conv (p, e) [weights_alone] c = Conv (a, e) [data_alone] f = Conv (d, v)
      r = Relu (d) [behind_relu] h = Conv (r, e) y = Sum (b, c, f, h) }"""


def layer(kind, node, *dtypes, constants=()):
    def tensors(names):
        return tuple(Tensor("t", (1,), dtype, "Linear") for dtype in names)

    return Layer(node, kind, tensors(dtypes), tensors(constants), (), (node,))


def test_products_behind_q_and_dq_are_counted_through_operators_that_move_values():
    layers = [layer("correlation", "first", "Int8"), layer("correlation", "second", "Float")]
    counted = count_products(onnx.parser.parse_model(QUANTIZED), layers, "int8")
    assert counted == Products(all=5, intended=2, low=1, missing=("second",))


@pytest.mark.parametrize(
    ("layers", "low"),
    [
        ([], 0),
        ([layer("correlation", "first", "Int8", "Float")], 1),
        ([layer("correlation", "first", "Float", "Int8")], 0),
        ([layer("kgen", "first", "Int8"), layer("correlation", "first", "Float")], 0),
        ([layer("kgen", "first", "Int8")], 1),
        ([layer("kgen", "first", "Float", constants=["Int8"])], 0),
    ],
)
def test_the_layer_that_computes_a_product_says_its_type(layers, low):
    second = layer("correlation", "second", "Int8")
    assert count_products(onnx.parser.parse_model(QUANTIZED), [*layers, second], "int8").low == low + 1


def test_a_generated_kernel_with_weights_of_a_float_type_computes_in_it():
    layers = [layer("kgen", name, "Float", constants=["BFloat16"]) for name in ("first", "second")]
    counted = count_products(onnx.parser.parse_model(QUANTIZED), layers, "bf16")
    assert (counted.intended, counted.low) == (5, 2)


PARSED = "BuildError: TensorRT's parser cannot read the model:\n"
LOGGED = (
    "Error Code 4: API Usage Error (node_of_y: the type of 7 inputs is wrong. In checkType at /_src/nodeBase.cpp:12)"
)


@pytest.mark.parametrize(
    ("reason", "part", "general"),
    [
        (
            f"{PARSED}node 3 'n' (Max): Assertion failed: a == 1: No more than 2 outputs!",
            PARSER,
            "No more than n outputs!",
        ),
        (f"{PARSED}node 3 'n' (Max): (p == 1) && \"Only L1 is supported.\"", PARSER, "Only L1 is supported."),
        (f"{PARSED}node 0 '' (Max): Invalid Node - n\nf: {LOGGED}\nx", PARSER, "the type of n inputs is wrong."),
        (
            "BuildError: engine 'tensorrt_rtx' does not have the operator Det (node 'y').",
            PARSER,
            "the operator is not supported",
        ),
        (
            f"BuildError: TensorRT for RTX 1.7 cannot build the model:\n{LOGGED}",
            BUILDER,
            "the type of n inputs is wrong.",
        ),
        (
            "CfgError: /folder/gru.cfg:15: [gru]: layer 0 is of the type [gru]: recurrent layers are not converted. Converted types: x",
            PACKAGE,
            "CfgError: […]: layer n is of the type […]: recurrent layers are not converted",
        ),
        ("ModelError: tensor 'x' is of the kind map.\nDo: this", PACKAGE, "ModelError: tensor … is of the kind map."),
    ],
)
def test_reasons_are_sorted_without_names_and_numbers(reason, part, general):
    assert (refused_by(reason), general_reason(reason)) == (part, general)


def test_warnings_that_this_package_causes_are_told_from_others():
    import logging

    logger = logging.getLogger("pytrtplugins.engines.tensorrt.logger")
    with recorded() as log:
        logger.warning("TensorRT: Attribute a not found in plugin node!")
        logger.warning("TensorRT: seeds are ignored")
        logger.debug(f"TensorRT: Layers:\n{LINE}")
    assert len(log.warnings) == 2
    assert len(log.own_warnings) == 1
    assert len(log.layers) == 1
    assert log not in logging.getLogger("pytrtplugins").handlers


def results(tmp_path):
    products = Products(5, 4, 3, ("second",))
    build = Build(2_500_000, 1.0, 9, products, ("a warning",))
    cfgs = [tmp_path / name for name in ("a.cfg", "b.cfg")]
    return [
        (Subject("a", "int8", cfgs[0]), Outcome(PASSED, values=build)),
        (Subject("b", "int8", cfgs[1]), Outcome(REFUSED, f"{PARSED}node 3 'n' (Max): no")),
        (Subject("b", "fp8", cfgs[1]), Outcome(CRASHED, "the process ended with code -11")),
    ]


def test_the_tables_count_and_the_faults_are_named(tmp_path):
    rows = results(tmp_path)
    made = {"versions": {"onnx": "1"}, **record("group", rows)}
    versions, summary, networks = builds.builds("group", made)
    assert versions == "onnx 1."
    assert summary.splitlines()[-1] == "| group | 3 | 1 | 1 | 0 | 0 | 0 | 1 | 1 |"
    assert networks.splitlines()[2:] == ["| a | 2.5 MB; 3 of 4 (5) | – |", "| b | refused | crashed |"]
    assert next(builds.reasons("group", made)).splitlines()[-1] == "| TensorRT's parser | no | 1 | b |"
    assert next(builds.missing("group", made)).splitlines()[2:] == ["| a | INT8 | `second` |"]
    assert faults(rows) == [
        "a (int8): warning: a warning",
        "a (int8): not in the low type: second",
        "b (fp8): crashed: the process ended with code -11",
    ]


def test_files_are_found_in_folders_and_by_their_path(tmp_path):
    (tmp_path / "folder").mkdir()
    paths = [tmp_path / "folder" / "b.cfg", tmp_path / "a.cfg", tmp_path / "a.onnx"]
    for path in paths:
        path.write_text("")
    assert find_files([tmp_path], ".cfg") == [paths[1], paths[0]]
    assert find_files([paths[0], paths[2]], ".cfg") == [paths[0]]
