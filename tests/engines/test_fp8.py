"""FP8 on engines that round as a GPU does: the same numbers as the Q/DQ model says, from the table that INT8 has."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.errors import CalibrationError, PrecisionError
from pytrtplugins.passes import prepare
from pytrtplugins.passes.normalize import with_opset
from pytrtplugins.passes.prepare import in_opset_of_precision
from tests.engines.model_parts import parsed
from tests.engines.networks import Affine, conv_net, run
from tests.engines.operators import literal
from tests.measures import relative, sqnr
from tests.passes.nets import Net, Swap, tiny_yolo


def net_with(plugin):
    """data → conv, which stays in float → the plugin → conv → conv, which stays in float."""
    net = Net()
    return net.model(net.conv(net.conv(net.plugin(plugin, net.conv("data", "a"), "p"), "b"), "c", leaky=False))


def built(engine, precision, model=None):
    model = net_with(Affine(3.0)) if model is None else model
    batches = [{"data": pixels(model, seed)} for seed in range(4)]
    calibrator = None if precision == "fp32" else MinMaxCalibrator(batches)
    return ptp.build(model, engine=engine, precision=precision, calibration=calibrator, progress=False)


def pixels(model, seed=9):
    side = model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    return np.random.default_rng(seed).random((1, 3, side, side), dtype=np.float32)


def outputs(engine):
    return next(iter(run(engine, {"data": pixels(engine.model)}).values()))


def has_codes(model):
    return any(tensor.data_type == TensorProto.FLOAT8E4M3FN for tensor in model.graph.initializer)


MODELS = {"pools and a concat": tiny_yolo(), "moves": net_with(Swap()), "computes": net_with(Affine(3.0))}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", ["reference", "onnxruntime"])
def test_an_engine_computes_what_its_fp8_model_says(name, model):
    engine = built(name, "fp8", model)
    assert has_codes(engine.model)
    found = outputs(engine)
    assert relative(found, outputs(built("reference", "fp8", model))) < 1e-5
    assert 20 < sqnr(found, outputs(built("reference", "fp32", model))) < 60


def test_the_model_means_what_onnxruntime_computes_of_it_literally():
    engine = built("reference", "fp8", tiny_yolo())
    (expected,) = literal(engine.model, {"data": pixels(engine.model)})
    assert relative(outputs(engine), expected) < 1e-5


def test_a_cpu_says_that_it_only_rounds(caplog):
    engine = built("onnxruntime", "fp8")
    assert engine.choices["fp8"].startswith("values are rounded as FP8 rounds them and computed with in float32")
    assert "has no arithmetic in FP8" in caplog.text


def test_an_engine_without_fp8_names_those_precisions_that_it_has():
    with pytest.raises(PrecisionError, match="engine 'cpu' has no precision 'fp8'; it has fp32, bf16, int8"):
        built("cpu", "fp8")


def test_fp8_needs_scales():
    with pytest.raises(CalibrationError, match='precision="fp8" needs the scales'):
        ptp.build(conv_net(Affine(3.0)), engine="reference", precision="fp8")


def test_a_model_that_holds_fp8_is_taken_as_it_is(caplog):
    model = built("reference", "fp8").model
    again = ptp.build(model, engine="reference", precision="fp8")
    np.testing.assert_array_equal(outputs(again), outputs(built("reference", "fp8")))
    with pytest.raises(PrecisionError, match="INT8 or FP8 model"):
        ptp.build(model, engine="reference", precision="fp16")


def test_an_engine_file_keeps_fp8(tmp_path):
    engine = built("onnxruntime", "fp8")
    engine.save(tmp_path / "fp8.engine")
    again = ptp.load_engine(tmp_path / "fp8.engine")
    assert again.precision == "fp8"
    np.testing.assert_array_equal(outputs(again), outputs(engine))


def test_older_opsets_are_converted_and_names_stay():
    model = prepare(conv_net(Affine(3.0)))
    converted = with_opset(model, 19)
    assert {item.domain: item.version for item in converted.opset_import}[""] == 19
    assert [list(node.output) for node in converted.graph.node] == [list(node.output) for node in model.graph.node]
    assert with_opset(converted, 19) is converted


def test_what_is_converted_keeps_the_dims_that_it_said():
    text = """(float[N,4,8,8] x) => (float[N,4,16,16] y) <float[4] scales = {1, 1, 2, 2}, float[N,4,16,16] r>
        { r = Resize <mode = "nearest"> (x, , scales)  y = Relu (r) }"""
    model = in_opset_of_precision(parsed(text, 18, 9), "fp8")
    dims = model.graph.value_info[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["N", 4, 16, 16]


def test_branches_get_the_opset_of_fp8_too():
    text = """(float[2] x, bool c) => (float[2] y) { y = If (c) <then_branch = a () => (float[2] r) { r = Relu (x) },
        else_branch = b () => (float[2] r) { r = Relu (x) }> }"""
    model = parsed(text, 18, 9)
    onnx.checker.check_model(model)
    made = with_opset(model, 19)
    assert made.opset_import[0].version == 19
    feeds = {"x": np.float32([-1, 2]), "c": np.array(True)}
    np.testing.assert_array_equal(literal(made, feeds)[0], [0, 2])
