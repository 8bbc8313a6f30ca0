"""`pytrt quantize` and `pytrt convert` write typed files, and say what stayed in float and how far the results are off."""

import json
import shlex

import numpy as np
import onnx
import pytest

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.cli import quantize as commands
from pytrtplugins.engines.registry import availability_of
from pytrtplugins.export.comparison import Comparison
from pytrtplugins.export.parser_check import ParserCheck
from pytrtplugins.export.typed_model import FloatNode, TypedModel
from pytrtplugins.passes import prepare
from tests.passes import nets

pytest.importorskip("onnxruntime")


@pytest.fixture
def net(tmp_path):
    """A network, and a cache as TensorRT 8 writes one, beside it."""
    model = nets.tiny_yolo()
    onnx.save(model, tmp_path / "net.onnx")
    table = nets.calibrated(prepare(model)).with_version("8.6.1")
    table.write(tmp_path / "net.cache")
    return table


def test_a_cache_becomes_a_quantized_file(pytrt, net, tmp_path):
    code, out, err = pytrt("quantize", "net.onnx", "--cache", "net.cache", "--rest", "fp16", "-o", "q.onnx")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    size = (tmp_path / "q.onnx").stat().st_size
    assert lines[:5] == [
        f"q.onnx: int8, the rest in fp16, for TensorRT, opset 19, {size:,} bytes",
        "4 layers with weights in int8",
        "1 layer in float:",
        "  e: last layer before the outputs (float_last)",
        "onnx.checker: valid",
    ]
    assert lines[5].startswith("onnxruntime ")
    assert lines[5].endswith(", beside float32, on random numbers:")
    assert lines[6].startswith("  e: largest error ")
    if not availability_of("tensorrt_rtx").builds:
        assert lines[7:] == ['parser: TensorRT for RTX is not installed. Do: pip install "pytrtplugins[rtx]"']


def test_the_cache_beside_the_model_is_the_default(pytrt, net):
    code, out, err = pytrt("quantize", "net.onnx", "--for", "openvino", "-o", "q.onnx")
    assert (code, err) == (0, "")
    assert "for OpenVINO" in out
    assert "parser" not in out


def test_images_become_scales(pytrt, net, tmp_path):
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "one.npz", data=np.random.default_rng(0).random((1, 3, 16, 16), np.float32))
    words = ["quantize", "net.onnx", "--calibration", "data", "--cache", "new.cache", "--algorithm", "minmax"]
    code, out, err = pytrt(*words, "--precision", "fp8", "-o", "q.onnx")
    assert (code, err) == (0, "")
    assert "on the first calibration sample:" in out
    assert CalibrationTable.read(tmp_path / "new.cache")


def test_tensors_without_a_scale_are_listed(printed, net, tmp_path):
    CalibrationTable({name: scale for name, scale in net.items() if name != "a_leaky"}).write(tmp_path / "old.cache")
    out = printed("quantize", "net.onnx", "--cache", "old.cache", "-o", "q.onnx")
    assert "1 tensor of the model without a scale in the cache: 'a_leaky'\n" in out
    assert "  b: the calibration has no scale of 'a_leaky'\n" in out
    assert "\n  Do: pytrt quantize MODEL --calibration IMAGES" in out


def test_json_has_the_same(pytrt, net):
    code, out, _ = pytrt("quantize", "net.onnx", "--json", "-o", "q.onnx")
    found = json.loads(out)
    assert (code, found["ok"], found["command"]) == (0, True, "pytrt quantize")
    assert found["result"]["quantized"] == ["a", "b", "c", "d"]
    assert found["result"]["comparison"]["outputs"][0]["name"] == "e"
    assert found["options"]["for"] == "tensorrt"


def test_quiet_prints_nothing(pytrt, net):
    assert pytrt("quantize", "net.onnx", "-q", "-o", "q.onnx") == (0, "", "")
    assert pytrt("convert", "net.onnx", "--precision", "fp16", "-q", "-o", "h.onnx") == (0, "", "")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("quantize --cache none.cache", "there is no calibration cache none.cache"),
        ("quantize --precision fp16", "precision 'fp16' does not quantize"),
        ("quantize --for ncnn", "'ncnn' is not one of"),
        ("quantize --rest int4", "'int4' is not one of"),
        ("quantize --precision p.yaml --cache net.cache", "p.yaml holds its own scales"),
        ("convert --precision fp16 --calibration data --cache net.cache", "give one of them"),
        ("convert --precision int8", "\nDo: pytrt quantize MODEL --precision int8 -o q.onnx"),
    ],
)
def test_what_cannot_be_is_refused(refused, net, command, message, tmp_path):
    (tmp_path / "p.yaml").write_text("format: 1\n")
    (tmp_path / "data").mkdir()
    name, *words = command.split()
    assert message in refused(name, "net.onnx", "-o", "q.onnx", *words)
    assert not (tmp_path / "q.onnx").exists()


def test_convert_writes_half_precision_and_lists_what_stays(pytrt, net, tmp_path):
    CalibrationTable({**net, "c_leaky": 1e6}).write(tmp_path / "wide.cache")
    code, out, err = pytrt("convert", "net.onnx", "--precision", "fp16", "--cache", "wide.cache", "-o", "h.onnx")
    assert (code, err) == (0, "")
    assert out.startswith("h.onnx: fp16, opset 18, ")
    assert "\n2 nodes in float32:\n  c_leaky: tensor 'c_leaky' reaches 1.27e+08\n" in out
    onnx.checker.check_model(tmp_path / "h.onnx", full_check=True)


def test_convert_takes_ranges_from_data(printed, net, tmp_path):
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "one.npz", data=np.full((1, 3, 16, 16), 3e4, np.float32))
    out = printed("convert", "net.onnx", "--precision", "fp16", "--calibration", "data", "-o", "h.onnx")
    assert " in float32:\n" in out


def typed(**facts):
    values = {
        "file": "q.onnx", "bytes": 1, "opset": 19, "precision": "int8", "rest": "fp32", "reader": "tensorrt", "opaque": (), "quantized": (),
        "float_layers": (), "missing": (), "float32_nodes": (), "comparison": Comparison("", "", problem="no data"),
        "parser": None,
    }  # fmt: skip
    return TypedModel(**(values | facts))


def test_a_file_that_the_parser_refuses_is_a_negative_result(pytrt, net, asked, monkeypatch):
    refused = ParserCheck("TensorRT for RTX 1.7", 0, "node 3: no")
    asked(commands, "export_quantized", typed(parser=refused))
    code, out, _ = pytrt("quantize", "net.onnx", "-o", "q.onnx")
    assert code == 1
    assert "TensorRT for RTX 1.7: node 3: no\n" in out
    assert "not compared with float32: no data\n" in out
    code, out, err = pytrt("quantize", "net.onnx", "-q", "-o", "q.onnx")
    assert (code, out, err) == (1, "", "q.onnx: TensorRT for RTX 1.7 refuses it: node 3: no\n")


def test_long_lists_are_cut(pytrt, net, asked):
    nodes = tuple(FloatNode(f"n{index}", "why") for index in range(12))
    names = tuple(f"t{index}" for index in range(12))
    parser = ParserCheck("TensorRT for RTX 1.7", 1234, "")
    asked(commands, "export_quantized", typed(float_layers=nodes, missing=names, parser=parser))
    _, out, _ = pytrt("quantize", "net.onnx", "-o", "q.onnx")
    assert "  n9: why\n  and 2 more, which --json lists\n" in out
    assert "'t9' and 2 more\n" in out
    assert "TensorRT for RTX 1.7: built, 1,234 bytes\n" in out


def test_options_reach_their_functions(pytrt, net, asked):
    calls = asked(commands, "export_quantized")
    pytrt(*shlex.split("quantize net.onnx -o q.onnx --rest bf16 --for onnxruntime --threads 3 --precision fp8"))
    ((_, output), options), = calls  # fmt: skip
    assert str(output) == "q.onnx"
    assert str(options.pop("calibration")) == "net.cache"
    assert options == {"precision": "fp8", "rest": "bf16", "reader": "onnxruntime", "threads": 3}
    calls = asked(commands.loading, "make_calibrator")
    pytrt(
        *shlex.split(
            "quantize net.onnx -o q.onnx --calibration p --algorithm entropy --limit 5 --calibration-fit stretch"
        )
    )
    ((algorithm, images, cache), options), = calls  # fmt: skip
    assert (algorithm, str(images), str(cache)) == ("entropy", "p", "net.cache")
    assert options == {"limit": 5, "mode": "stretch"}
