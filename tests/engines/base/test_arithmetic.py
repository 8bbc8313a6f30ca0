"""What an engine computes in is read from its model: layer by layer."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import Arithmetic
from pytrtplugins.engines.base import arithmetic as module
from pytrtplugins.engines.base.arithmetic import arithmetic_of
from pytrtplugins.passes import prepare, quantize, to_half
from pytrtplugins.passes.prepare import in_opset_of_precision
from pytrtplugins.tensor import DType
from tests.engines.model_parts import parsed
from tests.engines.networks import conv_net, image


@pytest.fixture(scope="module")
def model():
    return prepare(conv_net())


@pytest.fixture(scope="module")
def table(model):
    return ptp.engines.calibrate(model, MinMaxCalibrator([{"data": image()}]), progress=False)


@pytest.mark.parametrize(
    ("asked", "fallback", "rest", "precision", "text"),
    [
        ("fp32", "", "fp32", "fp32", "fp32"),
        ("fp16", "", "fp32", "fp16", "fp16"),  # engine cuda computes a float32 model in float16
        ("tf32", "", "fp32", "tf32", "tf32"),
        ("bf16", "slower", "fp32", "fp32", "bf16, which computes in fp32 (slower)"),
        ("int8", "slower", "fp32", "fp32", "int8, which computes in fp32 (slower)"),
        ("int8", "", "fp16", "fp16", "int8, which computes in fp16 (the model was built without INT8 layers)"),
        ("fp8", "", "fp32", "fp32", "fp8, which computes in fp32 (the model was built without FP8 layers)"),
    ],
)
def test_a_float_model_computes_as_asked_or_in_the_rests_precision(model, asked, fallback, rest, precision, text):
    arithmetic = arithmetic_of(model, asked, fallback, rest)
    assert (arithmetic.asked, arithmetic.precision) == (asked, precision)
    assert dict(arithmetic.layers) == {"conv1": precision, "conv2": precision}
    assert str(arithmetic) == text


@pytest.mark.parametrize(("precision", "first"), [("int8", "int8"), ("fp8", "fp32")])  # an image's layer takes no FP8
def test_layers_with_codes_for_weights_and_the_others_are_told_apart(model, table, precision, first):
    def found(**options):
        quantized = quantize(
            in_opset_of_precision(model, precision), table, precision=precision, float_last=False, **options
        )
        return arithmetic_of(quantized, precision)

    every, one = found(), found(exclude=["conv1"])
    assert (every.precision, every.layers) == (precision, {"conv1": first, "conv2": precision})
    assert (one.layers, one.reasons) == ({"conv1": "fp32", "conv2": precision}, {"conv1": "excluded"})
    assert str(one) == f"{precision} in 1 of 2 layers, fp32 in 'conv1'"


def test_a_name_does_not_change_what_the_codes_are(model, table):
    arithmetic = arithmetic_of(
        quantize(in_opset_of_precision(model, "fp8"), table, precision="fp8", float_last=False), "int8"
    )
    assert (arithmetic.precision, set(arithmetic.layers.values())) == ("fp8", {"fp32", "fp8"})
    assert str(arithmetic) == "int8, which computes in fp8 (the model was built without INT8 layers)"


@pytest.mark.parametrize(("kind", "precision"), [(DType.FLOAT16, "fp16"), (DType.BFLOAT16, "bf16")])
def test_a_file_that_says_it_layer_by_layer_is_followed(model, kind, precision):
    arithmetic = arithmetic_of(to_half(model, kind, keep=["conv2"]), precision)
    assert (arithmetic.precision, arithmetic.layers) == (precision, {"conv1": precision, "conv2": "fp32"})
    assert str(arithmetic) == f"{precision} in 1 of 2 layers, fp32 in 'conv2'"


def test_that_all_layers_compute_as_asked_is_said_in_short(model, table):
    assert str(arithmetic_of(quantize(model, table, float_last=False), "int8")) == "int8 in all 2 layers"


def test_many_float_layers_are_counted():
    layers = {f"c{number}": "int8" if number < 2 else "fp32" for number in range(1500)}
    text = "int8 in 2 of 1,500 layers, fp32 in 'c2', 'c3', 'c4' and 1,495 more"
    assert str(Arithmetic("int8", "int8", layers)) == text


def graph(nodes, **constants):
    return parsed(f"(float[1,4] x) => (float[1,4] y) {{ {nodes} }}", **constants)


PRECISIONS = {"FLOAT": "", "FLOAT16": "fp16", "BFLOAT16": "bf16"}
PRECISIONS |= {name: name.lower().removeprefix("u") for name in ("INT8", "UINT8", "INT4", "UINT4")}
PRECISIONS |= {
    name: "fp8" for name in list(TensorProto.DataType.keys()) if name.startswith("FLOAT8E") and name != "FLOAT8E8M0"
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_type_of_weights_is_the_precision_of_their_layer(name):
    """Codes behind a DequantizeLinear, or as they are."""
    number, precision = TensorProto.DataType.Value(name), PRECISIONS[name]
    assert module._NAMES[number] == precision
    assert len(module._NAMES) == len(PRECISIONS)
    weights = helper.make_tensor("w", number, [2, 2], np.ones(4, np.float32))
    for is_code in {True, precision not in ("fp16", "bf16", "")}:
        nodes = "d = DequantizeLinear (w, s) y = MatMul (x, d)" if is_code else "y = MatMul (x, w)"
        model = graph(nodes, s=np.float32(1))
        model.graph.initializer.append(weights)
        assert module.layer_types(model) == {"MatMul_y": precision or ("int8" if is_code else "")}


INTEGER = {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QGemm"}
INTEGER |= {"MatMulIntegerToFloat", "DynamicQuantizeMatMul"}


@pytest.mark.parametrize("op", sorted(INTEGER))
def test_operators_of_codes_are_int8(op):
    assert set(module._OF_CODES) == INTEGER
    assert module.layer_types(graph(f"y = {op} (x, w)")) == {f"{op}_y": "int8"}


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm", "MatMul"])
def test_layers_are_told_from_other_operators(op):
    model = graph(f"z = {op} (x, w) y = Relu (z)", w=np.ones((4, 4), np.float16))
    assert module.layer_types(model) == {f"{op}_z": "fp16"}


def test_codes_of_onnxs_own_integer_operators_are_int8():
    nodes = "q, s, z = DynamicQuantizeLinear (x) i = MatMulInteger (q, w, z) y = Cast <to = 1> (i)"
    arithmetic = arithmetic_of(graph(nodes, w=np.ones((4, 4), np.int8)), "fp32")
    assert (arithmetic.precision, arithmetic.layers) == ("int8", {"MatMulInteger_i": "int8"})
    assert str(arithmetic) == "fp32, which computes in int8 (the model says so)"


def test_tensors_between_layers_may_be_all_that_is_int8():
    nodes = "q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) y = MatMul (d, w)"
    model = graph(nodes, s=np.float32(0.1), z=np.uint8(0), w=np.ones((4, 4), np.float32))
    arithmetic = arithmetic_of(model, "int8")
    assert (arithmetic.precision, arithmetic.layers) == ("int8", {"MatMul_y": "fp32"})
    assert str(arithmetic) == "int8 in 0 of 1 layers, fp32 in 'MatMul_y'"


def test_weights_that_are_kept_in_half_precision_and_widened_count_as_half():
    model = graph("wide = Cast <to = 1> (w) y = MatMul (x, wide)", w=np.ones((4, 4), np.float16))
    assert arithmetic_of(model, "fp16").layers == {"MatMul_y": "fp32"}  # the product's operands are float32


def test_every_engine_says_it_and_so_does_what_it_saved(tmp_path, table):
    calibrated = {"precision": "int8", "calibration": table}
    for name in ("cpu", "onnxruntime", "reference"):
        engine = ptp.build(
            conv_net(), engine=name, settings=ptp.engines.registry.engine_class(name).always("int8"), **calibrated
        )
        engine.save(tmp_path / "net.engine")
        for each in (engine, ptp.load_engine(tmp_path / "net.engine")):
            assert each.arithmetic.precision == "int8"
            assert each.arithmetic.layers["conv1"] == "int8"
            assert str(each.arithmetic) in repr(each)
    float_form = ptp.build(conv_net(), engine="cpu")
    assert (float_form.arithmetic.precision, str(float_form.arithmetic)) == ("fp32", "fp32")
