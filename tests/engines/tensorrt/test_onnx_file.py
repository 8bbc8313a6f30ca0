"""Typed ONNX files in the parser and builder of TensorRT for RTX, as they are."""

import logging

import onnx
import pytest

from benchmarks.tensorrt_builds.build import recorded
from darknet2caffe import read_network, to_onnx
from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.engines.tensorrt.onnx_file import rtx_plan
from pytrtplugins.errors import BuildError
from pytrtplugins.export.parser_check import check_parser
from pytrtplugins.export.typed_model import export_half, export_quantized
from pytrtplugins.layers import Reorg
from pytrtplugins.model import Graph
from pytrtplugins.passes import prepare
from tests.engines.model_parts import parsed
from tests.pages import Reader, blocks, texts

from .conftest import SUBSTRATE
from .old_project import write_project
from .small_networks import MODELS
from .test_rtx import network

pytestmark = pytest.mark.skipif(SUBSTRATE != "rtx", reason="for TensorRT for RTX. Do: make test-tensorrt")


def layer_lines(caplog):
    """What the builder lists: a line for each layer."""
    return [line for record in caplog.records for line in record.getMessage().splitlines() if "LayerType: " in line]


def table(model):
    names = [*(info.name for info in model.graph.input), *(name for node in model.graph.node for name in node.output)]
    return CalibrationTable(dict.fromkeys(names, 3 / 127))


@pytest.mark.parametrize("precision", ["int8", "fp8"])
@pytest.mark.parametrize("rest", ["fp32", "fp16", "bf16"])
def test_a_quantized_file_is_built(tmp_path, caplog, precision, rest):
    model = prepare(network(Reorg(stride=2)))
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=table(model), precision=precision, rest=rest)
    assert (exported.parser.problem, exported.parser.refused) == ("", False)
    assert exported.parser.library.startswith("TensorRT for RTX 1.")
    assert exported.parser.bytes > 10_000
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("rest", ["fp32", "fp16"])
def test_its_convolutions_take_int8(tmp_path, caplog, rest):
    caplog.set_level(logging.DEBUG)
    model = prepare(network(Reorg(stride=2)))
    export_quantized(model, tmp_path / "q.onnx", calibration=table(model), rest=rest)
    lines = layer_lines(caplog)
    for name in ("first", "second"):
        (line,) = [line for line in lines if line.split(",")[0].startswith(f"Name: {name}")]
        assert "Datatype: Int8" in line.split("Outputs")[0]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_file_in_half_precision_is_built(tmp_path, precision):
    exported = export_half(network(Reorg(stride=2)), tmp_path / "h.onnx", precision=precision)
    assert (exported.parser.problem, exported.parser.refused) == ("", False)


def test_a_registered_plugin_is_preferred_to_the_function_in_the_file(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    Graph(network(Reorg(stride=2))).save(tmp_path / "f.onnx", functions=True)
    model = onnx.load(tmp_path / "f.onnx")
    assert [function.name for function in model.functions] == ["Reorg"]
    assert rtx_plan(model)
    assert any(line.startswith("Name: plugin") for line in layer_lines(caplog))


def test_a_refusal_says_why(tmp_path):
    model = network(Reorg(stride=2))
    model.graph.node[1].op_type, model.graph.node[1].domain = "Unheard", "nobody"
    del model.graph.node[1].attribute[:]
    model.opset_import.append(onnx.helper.make_opsetid("nobody", 1))
    with pytest.raises(BuildError, match="Unheard"):
        rtx_plan(model)
    asked = check_parser(model)
    assert (asked.refused, asked.library) == (False, "")
    assert "node 'plugin' has no known class" in asked.problem
    parsed_model = check_parser(parsed("(float[2,2] x) => (float y) { y = Det (x) }", 18, 10))
    assert parsed_model.refused
    assert "Det_y" in parsed_model.problem


def test_the_commands_of_the_page_build_an_engine(tmp_path):
    write_project(tmp_path)
    (plugin,) = [
        block for block in blocks("docs/how-to/tensorrt11.md", "docs/how-to/tensorrt11_more.md") if block.title
    ]
    (tmp_path / plugin.title).write_text(plugin.text)
    lines = "".join(texts(("docs/how-to/tensorrt11.md", "docs/how-to/tensorrt11_more.md"), "sh")).splitlines()
    quantize = next(line for line in lines if "--cache old.cache" in line)
    build = next(line for line in lines if "--engine tensorrt_rtx" in line)
    reader = Reader(tmp_path)
    assert "TensorRT for RTX 1." in reader.shell(quantize)
    reader.shell(build)
    assert (tmp_path / "model.engine").stat().st_size > 10_000


@pytest.mark.parametrize("rest", ["fp32", "fp16", "bf16"])
def test_every_convolution_that_is_quantized_takes_codes_whatever_the_rest_is(tmp_path, rest):
    """The shipped network has five pools before convolutions."""
    cfg = MODELS / "yolov2-animals.cfg"
    model = to_onnx(read_network(cfg, cfg.with_suffix(".weights")))
    exported = export_quantized(model, tmp_path / "q.onnx", calibration=cfg.with_suffix(".cache"), rest=rest)
    with recorded() as log:
        rtx_plan(onnx.load(tmp_path / "q.onnx"))
    taken = [layer for layer in log.layers if layer.kind == "correlation" and layer.inputs[0].dtype == "Int8"]
    assert len(taken) == len(exported.quantized) == 22
