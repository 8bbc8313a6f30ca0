"""Typed ONNX files: what onnx.checker accepts, and what plain onnxruntime computes of them."""

import inspect

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.engines.openvino import CpuEngine
from pytrtplugins.engines.tensorrt import TensorrtEngine
from pytrtplugins.errors import (
    BuildError,
    CalibrationTableError,
    FormatError,
    ModelError,
    PrecisionError,
    UsageError,
)
from pytrtplugins.export import _typed_steps
from pytrtplugins.export.typed_model import FloatNode, export_half, export_quantized
from pytrtplugins.layers import Reorg
from pytrtplugins.passes import LayerPrecision, Precisions, layer_names, prepare, quantize
from tests.engines.networks import conv_net
from tests.passes import nets

pytest.importorskip("openvino")


@pytest.fixture
def model():
    return nets.tiny_yolo()


@pytest.fixture
def table(model):
    return nets.calibrated(prepare(model))


@pytest.mark.parametrize("export", [export_half, export_quantized])
def test_progress_is_shown_where_nothing_is_said(export):
    assert inspect.signature(export).parameters["progress"].default is True


def opset(path):
    return next(item.version for item in onnx.load(path).opset_import if not item.domain)


def types(path):
    model = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True)
    return {info.name: info.type.tensor_type.elem_type for info in (*model.graph.value_info, *model.graph.output)}


def qdq(model):
    return [
        (node.op_type, list(node.input), list(node.output)) for node in model.graph.node if "Linear" in node.op_type
    ]


def test_the_nodes_stand_where_the_engine_of_the_reader_has_them(model, table, tmp_path):
    for reader, cls in (("tensorrt", TensorrtEngine), ("openvino", CpuEngine)):
        exported = export_quantized(model, tmp_path / "q.onnx", calibration=table, reader=reader)
        wanted = quantize(prepare(model), table, **cls.quantize_options("int8"))
        written = onnx.load(tmp_path / "q.onnx")
        assert [item[0] for item in qdq(written)] == [item[0] for item in qdq(wanted)]
        assert [item[2] for item in qdq(written)] == [item[2] for item in qdq(wanted)]
        assert (exported.precision, exported.rest, exported.reader, exported.opset) == ("int8", "fp32", reader, 18)
        assert exported.quantized == ("a", "b", "c", "d")
        assert exported.float_layers == (FloatNode("e", "last layer before the outputs (float_last)"),)


def test_onnxruntime_computes_what_our_engine_computes(model, table, tmp_path):
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=table, reader="onnxruntime")
    x = nets.image(model)
    settings = {"int8": "always"}
    engine = ptp.build(model, engine="onnxruntime", precision="int8", calibration=table, settings=settings)
    with engine.create_context() as context:
        ours = context.run({"data": x})["e"]
    plain = nets.run(onnx.load(tmp_path / "q.onnx"), x, ["e"])["e"]
    step = float(table["e"])
    assert np.abs(ours - plain).max() < 4 * step
    assert 0 < exported.comparison.outputs[0].relative < 0.1
    assert exported.parser is None


@pytest.mark.parametrize("rest", ["fp32", "fp16"])
def test_plain_openvino_reads_the_file_and_computes_the_same(model, table, tmp_path, rest):
    openvino = pytest.importorskip("openvino")
    export_quantized(model, tmp_path / "q.onnx", calibration=table, reader="openvino", rest=rest)
    x = nets.image(model)
    compiled = openvino.Core().compile_model(str(tmp_path / "q.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    expected = nets.run(onnx.load(tmp_path / "q.onnx"), x, ["e"])["e"]
    assert np.abs(compiled([x])[0] - expected).max() < 0.05 * np.abs(expected).max()


def test_the_error_is_that_of_plain_onnxruntime(model, table, tmp_path):
    x = nets.image(model, seed=3, batch=1)
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=MinMaxCalibrator([{"data": x}]))
    assert exported.comparison.data == "the first calibration sample"
    expected, given = (nets.run(each, x, ["e"])["e"] for each in (model, onnx.load(tmp_path / "q.onnx")))
    (output,) = exported.comparison.outputs
    assert output.name == "e"
    assert output.max_abs == pytest.approx(float(np.abs(expected - given).max()), rel=1e-3)
    relative = np.linalg.norm((expected - given).ravel()) / np.linalg.norm(expected.ravel())
    assert output.relative == pytest.approx(float(relative), rel=1e-3)


@pytest.mark.parametrize(("rest", "version", "kind"), [("fp16", 19, "FLOAT16"), ("bf16", 22, "BFLOAT16")])
@pytest.mark.parametrize("reader", ["tensorrt", "onnxruntime", "openvino"])
def test_the_rest_is_written_in_its_type(model, table, tmp_path, rest, version, kind, reader):
    path = tmp_path / "q.onnx"
    exported = export_quantized(model, path, calibration=table, rest=rest, reader=reader)
    onnx.checker.check_model(path, full_check=True)
    assert (exported.opset, opset(path), exported.rest) == (version, version, rest)
    kinds = types(path)
    assert kinds["b_leaky_dequantized"] == getattr(onnx.TensorProto, kind)
    assert kinds["e"] == onnx.TensorProto.FLOAT
    assert exported.quantized == ("a", "b", "c", "d")
    if rest == "fp16":
        assert exported.comparison.outputs[0].relative < 0.1


def test_fp8_is_written(model, table, tmp_path):
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=table, precision="fp8", rest="fp16")
    onnx.checker.check_model(tmp_path / "q.onnx", full_check=True)
    assert "c" in exported.quantized
    assert exported.opset == 19
    assert any(
        item.data_type == onnx.TensorProto.FLOAT8E4M3FN for item in onnx.load(tmp_path / "q.onnx").graph.initializer
    )


@pytest.mark.parametrize(
    "header", ["TRT-7103-EntropyCalibration2", "TRT-8601-MinMaxCalibration", "TRT-100200-LegacyCalibration"]
)
def test_caches_of_tensorrt_7_to_10_are_read_by_tensor_name(model, table, tmp_path, header):
    lines = table.to_bytes().decode().splitlines()[1:]
    extra = ["(Unnamed Layer* 7) [Shuffle]_output: 3c010204"]
    (tmp_path / "old.cache").write_text("\n".join([header, *lines, *extra]) + "\n")
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=tmp_path / "old.cache")
    assert (exported.missing, exported.quantized) == ((), ("a", "b", "c", "d"))


def test_a_cache_of_the_exported_model_fits_the_one_with_its_batch_norms_folded(tmp_path):
    net = nets.Net(size=8)
    last = "data"
    for name in ("a", "b", "c"):
        conv = net.conv(last, name, 4, leaky=False)
        ones, zeros = (np.full(4, value, np.float32) for value in (1.5, 0.1))
        operands = [
            net.constant(f"{name}_bn_{k}", values) for k, values in zip("sbmv", (ones, zeros, zeros, ones), strict=True)
        ]
        last = net.add("Relu", [net.add("BatchNormalization", [conv, *operands], f"{name}_bn")], f"{name}_relu")
    model = net.model(last)
    nets.calibrated(model).with_version("8.6.1").write(tmp_path / "old.cache")  # of the tensors that TensorRT saw
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=tmp_path / "old.cache")
    assert (exported.missing, exported.quantized) == ((), ("a", "b"))
    assert exported.comparison.outputs[0].relative < 0.2


def test_tensors_without_a_scale_are_listed_and_their_layers_stay_in_float(model, table, tmp_path):
    partial = CalibrationTable({name: scale for name, scale in table.items() if name != "a_leaky"})
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=partial)
    assert exported.missing == ("a_leaky",)
    assert exported.quantized == ("a", "c", "d")
    assert FloatNode("b", "the calibration has no scale of 'a_leaky'") in exported.float_layers


def test_a_cache_of_other_names_is_refused(model, table, tmp_path):
    other = CalibrationTable({f"x{name}": scale for name, scale in table.items()})
    with pytest.raises(CalibrationTableError, match="\nDo: pytrt calibrate") as caught:
        export_quantized(model, tmp_path / "q.onnx", calibration=other)
    assert caught.value.facts["only_in_network"]
    assert not (tmp_path / "q.onnx").exists()


def test_plugins_are_kept_for_tensorrt_and_written_out_for_others(tmp_path):
    model = conv_net(Reorg(stride=2))
    weights = next(item for item in model.graph.initializer if item.name == "w2")
    weights.CopyFrom(onnx.numpy_helper.from_array(np.ones((4, 32, 1, 1), np.float32), "w2"))
    for reader, domains in (("tensorrt", {"", "darknet"}), ("onnxruntime", {""}), ("openvino", {""})):
        exported = export_quantized(
            model,
            tmp_path / "q.onnx",
            calibration=MinMaxCalibrator([{"data": np.ones((1, 3, 8, 8), np.float32)}]),
            reader=reader,
        )
        assert {node.domain for node in onnx.load(tmp_path / "q.onnx").graph.node} == domains
        assert exported.comparison.runner.startswith("onnxruntime ")


def test_a_plugin_without_a_decomposition_is_run_by_our_engine_or_refused(tmp_path):
    @ptp.plugin(namespace="test.typed")
    class Twice(ptp.Plugin):
        def output_dims(self, x):
            return x

        def compute(self, x):
            return x + x

    model, data = conv_net(Twice()), MinMaxCalibrator([{"data": np.ones((1, 3, 8, 8), np.float32)}])
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=data)
    assert exported.comparison.runner == "engine 'onnxruntime', since a plugin has no decomposition"
    assert exported.comparison.outputs[0].relative < 0.1
    with pytest.raises(BuildError, match=r"(?s)plugin test.typed::Twice cannot .*\nDo: add decompose") as caught:
        export_quantized(model, tmp_path / "r.onnx", calibration=data, reader="openvino")
    assert caught.value.facts == {"node": "plugin0", "engine": "openvino"}
    assert not (tmp_path / "r.onnx").exists()


def test_half_precision_keeps_what_is_beyond_float16(model, table, tmp_path):
    ranges = CalibrationTable({**table, "c_leaky": 1e6})
    exported = export_half(model, tmp_path / "h.onnx", precision="fp16", calibration=ranges)
    onnx.checker.check_model(tmp_path / "h.onnx", full_check=True)
    assert {node.name for node in exported.float32_nodes} == {"c_leaky", "route"}
    assert exported.float32_nodes[0].why == "tensor 'c_leaky' reaches 1.27e+08"
    kinds = types(tmp_path / "h.onnx")
    assert (kinds["c_leaky"], kinds["c"], kinds["a"]) == (1, 10, 10)
    assert exported.comparison.outputs[0].relative < 0.01
    assert (exported.precision, exported.rest, exported.reader, exported.opset) == ("fp16", "fp16", "", 18)


def test_without_a_calibration_ranges_come_from_a_run(model, tmp_path):
    for item in model.graph.initializer:
        if item.name == "c_w":
            array = onnx.numpy_helper.to_array(item) * np.float32(6e4)
            item.CopyFrom(onnx.numpy_helper.from_array(array, item.name))
    exported = export_half(model, tmp_path / "h.onnx", precision="fp16")
    assert {"c", "c_leaky"} <= {node.name for node in exported.float32_nodes}
    assert exported.comparison.outputs[0].relative < 0.01
    assert not export_half(model, tmp_path / "h.onnx", precision="bf16").float32_nodes
    onnx.checker.check_model(tmp_path / "h.onnx", full_check=True)


def test_a_precision_file_is_followed(model, tmp_path):
    prepared = prepare(model)
    names = layer_names(prepared)
    pinned = {"b": LayerPrecision("fp32", reason="it is far off")}
    Precisions("fp16", network_digest(prepared), names, pinned).write(tmp_path / "half.yaml")
    exported = export_half(model, tmp_path / "h.onnx", precision=tmp_path / "half.yaml")
    assert exported.float32_nodes == (FloatNode("b", "it is far off"),)
    scales = {name: float(scale) for name, scale in nets.calibrated(prepared).items()}
    Precisions("int8", network_digest(prepared), names, pinned, scales).write(tmp_path / "int8.yaml")
    exported = export_quantized(model, tmp_path / "q.onnx", precision=tmp_path / "int8.yaml")
    assert exported.quantized == ("a", "c", "d")
    with pytest.raises(PrecisionError, match="\nDo: pytrt quantize MODEL --precision"):
        export_half(model, tmp_path / "h.onnx", precision=tmp_path / "int8.yaml")
    with pytest.raises(PrecisionError, match="\nDo: pytrt convert MODEL --precision"):
        export_quantized(model, tmp_path / "h.onnx", precision=tmp_path / "half.yaml")
    with pytest.raises(FormatError, match="another network"):
        export_half(conv_net(), tmp_path / "h.onnx", precision=tmp_path / "half.yaml")


def test_what_cannot_be_is_refused_before_anything_is_written(model, table, tmp_path):
    path = tmp_path / "x.onnx"
    with pytest.raises(UsageError, match="rest: expected fp32, fp16, bf16; found 'int4'"):
        export_quantized(model, path, calibration=table, rest="int4")
    with pytest.raises(UsageError, match="reader: expected tensorrt, onnxruntime, openvino; found 'ncnn'"):
        export_quantized(model, path, calibration=table, reader="ncnn")
    with pytest.raises(PrecisionError, match="holds Q/DQ nodes already"):
        export_quantized(quantize(prepare(model), table), path, calibration=table)
    assert not path.exists()


def test_what_the_checker_refuses_is_not_written(tmp_path):
    model = nets.tiny_yolo()
    broken = onnx.ModelProto.FromString(model.SerializeToString())
    broken.graph.node[0].attribute[0].i = 7
    broken.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ModelError, match="\nDo: leave the operator's nodes in float32") as caught:
        _typed_steps.write_checked(broken, tmp_path / "x.onnx", False)
    assert caught.value.facts["path"] == tmp_path / "x.onnx"
    assert not (tmp_path / "x.onnx").exists()
