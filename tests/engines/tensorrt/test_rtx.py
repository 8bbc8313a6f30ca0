"""TensorRT for RTX: its own parser and builder, without a GPU. What a plan is made of is read from the builder's list of layers."""

import logging
import re
import shlex

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins import tensorrt
from pytrtplugins.calibration.table import CalibrationTable
from pytrtplugins.engines.registry import availability_of
from pytrtplugins.engines.tensorrt import _api
from pytrtplugins.errors import BuildError, UnavailableError, UsageError
from pytrtplugins.layers import Reorg
from tests.check.plugins.hard_swish import HardSwish
from tests.engines.model_parts import parsed

from .conftest import SUBSTRATE
from .test_page import ALL_COMMANDS
from .user_plugins import Scale

pytestmark = pytest.mark.skipif(SUBSTRATE != "rtx", reason="for TensorRT for RTX. Do: make test-tensorrt")
NAMES = ("x", "a", "b", "c", "y")
TABLE = CalibrationTable({name: np.float32(3 / 127) for name in NAMES})


def network(plugin, batch="N"):
    """Convolution → plugin → convolution → convolution."""
    rng = np.random.default_rng(0)
    channels, side = (64, 4) if isinstance(plugin, Reorg) else (16, 8)
    dims = {"w0": (16, 16, 3, 3), "w1": (16, channels, 3, 3), "w2": (8, 16, 1, 1)}
    weights = {name: (0.1 * rng.standard_normal(shape)).astype(np.float32) for name, shape in dims.items()}
    node = plugin.as_node(["a"], ["b"], "plugin")
    text = f"""(float[{batch},16,8,8] x) => (float[{batch},8,{side},{side}] y) {{
        a = Conv <pads = [1, 1, 1, 1]> (x, w0)  b = {node.domain}.{node.op_type} (a)
        c = Conv <pads = [1, 1, 1, 1]> (b, w1)  y = Conv (c, w2) }}"""
    model = parsed(text, 19, 10, [node.domain], **weights)
    model.graph.node[1].CopyFrom(node)
    for other, name in ((0, "first"), (2, "second"), (3, "third")):
        model.graph.node[other].name = name
    return model


def built(plugin, precision="fp32", **options):
    calibration = TABLE if precision in ("int8", "fp8") else None
    options |= {"engine": "tensorrt_rtx", "precision": precision, "calibration": calibration, "progress": False}
    return ptp.build(network(plugin), **options)


@pytest.fixture
def layers(caplog):
    """What the builder lists: name → line."""
    caplog.set_level(logging.DEBUG)

    def found():
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
        text = "\n".join(record.getMessage() for record in caplog.records)
        return dict(re.findall(r"^Name: (\S+), LayerType: \w+, (Inputs: .*)", text, re.MULTILINE))

    return found


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_plan_is_built_for_the_machines_that_are_named(layers, precision):
    engine = built(Reorg(stride=2), precision, settings={"target": "sm86,sm120"})
    assert len(engine.plan) > 10_000
    assert engine.requirements()["target"] == ["sm86", "sm120"]
    assert any("plugin" in name for name in layers()), layers()


@pytest.mark.parametrize("plugin", [Reorg(stride=2), HardSwish()], ids=["passes through", "requantizes"])
def test_a_plugin_between_quantized_convolutions_gets_codes(layers, plugin):
    built(plugin, "int8")
    (line,) = [line for name, line in layers().items() if "plugin" in name]
    assert line.count("Int8") >= 2, line


def test_a_float_plugin_stays_in_float(layers):
    built(Scale(), "int8")
    (line,) = [line for name, line in layers().items() if "plugin" in name]
    assert "Int8" not in line


def test_what_the_parser_refuses_is_named_with_its_node():
    model = parsed("(float[2,3,3] x) => (float[2] y) { y = Det (x) }", 18)
    with pytest.raises(BuildError, match="Det_y"):
        ptp.build(model, engine="tensorrt_rtx", progress=False)


def test_a_file_is_made_without_a_gpu_and_runs_on_one(tmp_path):
    here = availability_of("tensorrt_rtx")
    assert here.builds
    engine = built(Reorg(stride=2))
    engine.save(tmp_path / "net.engine")
    again = ptp.load_engine(tmp_path / "net.engine")
    assert again.payload() == engine.plan
    if not here.available:
        with pytest.raises(UnavailableError, match=r"it runs on GPUs of compute capability 7.5 to 8.9, and 12"):
            again.create_context()


@pytest.mark.parametrize("name", ["quantization", "version_compatible", "workspace_bytes", "level", "timing_cache"])
def test_settings_that_do_nothing_here_are_refused_with_the_reason(name):
    with pytest.raises(UsageError, match=f"setting {name} is engine 'tensorrt''s: it"):
        built(Reorg(stride=2), settings={name: 1})


def test_plugins_of_other_interfaces_are_refused_with_the_reason():
    words = r"TensorRT for RTX 1\.\S+: IPluginV2DynamicExt: its parser takes IPluginV3 alone"
    with pytest.raises(UnavailableError, match=words):
        tensorrt.register(Reorg, interface="v2", package="tensorrt_rtx")
    with pytest.raises(UnavailableError, match=r"no quickly deployable plugins[\s\S]*Do: .*register\(cls, package="):
        tensorrt.to_qdp(Reorg)


def test_gpus_that_it_does_not_know_are_refused():
    with pytest.raises(UsageError, match="sm75, sm80, sm86, sm89, sm120, sm121; found 'sm90'"):
        built(Reorg(stride=2), settings={"target": "sm90"})


def test_the_command_of_the_page_builds(tmp_path, monkeypatch):
    from pytrtplugins.cli import main

    (command,) = [each for each in ALL_COMMANDS if "tensorrt_rtx" in each]
    monkeypatch.chdir(tmp_path)
    onnx.save(network(Reorg(stride=2)), "model.onnx")
    with pytest.raises(SystemExit) as end:
        main(["build", *shlex.split(command.replace("--plugins mylayers.py ", ""))])
    assert not end.value.code
    assert ptp.load_engine("model.engine").requirements()["target"] == ["sm86", "sm120"]


def test_the_package_has_the_interface_of_tensorrt_11():
    api = _api.load(_api.RTX)
    assert (api.major, api.is_rtx, api.builds, api.has_v2) == (11, True, True, False)
    assert api.title.startswith("TensorRT for RTX 1.")
