"""TensorRT for RTX: its own parser and builder, without a GPU. What a plan is made of is read from the builder's list of layers."""

from __future__ import annotations

import logging
import re
import shlex
from typing import ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins import tensorrt
from pytrtplugins.calibration.table import CalibrationTable
from pytrtplugins.engines.registry import availability_of
from pytrtplugins.engines.tensorrt import _api
from pytrtplugins.errors import BuildError, UnavailableError, UsageError
from pytrtplugins.layers import Reorg
from tests.check.plugins.hard_swish import HardSwish

from .conftest import SUBSTRATE
from .test_page import ALL_COMMANDS

pytestmark = pytest.mark.skipif(SUBSTRATE != "rtx", reason="for TensorRT for RTX. Do: make test-tensorrt")
NAMES = ("x", "a", "b", "c", "y")
TABLE = CalibrationTable({name: np.float32(3 / 127) for name in NAMES})


@ptp.plugin(namespace="test.rtx")
class Raises(ptp.Plugin):
    """Raises in the method that its field names."""

    method: str = ""

    def output_dims(self, x):
        return self._or_raise("output_dims", x)

    def compute(self, x):
        return x.copy()

    def output_dtypes(self, x):
        return self._or_raise("output_dtypes", x)

    def supports_format(self, position, descs):
        return self._or_raise("supports_format", descs[position].layout == "linear")

    def workspace_size(self, inputs, outputs):
        return self._or_raise("workspace_size", 0)

    armed: ClassVar[bool] = True

    def _or_raise(self, method, value):
        if self.armed and method == self.method:
            raise ZeroDivisionError(f"mine, in {method}")
        return value


def network(plugin, batch="N"):
    """Convolution → plugin → convolution → convolution."""
    rng = np.random.default_rng(0)
    channels = 64 if isinstance(plugin, Reorg) else 16
    side = 8 // (2 if isinstance(plugin, Reorg) else 1)
    weights = [
        (0.1 * rng.standard_normal(dims)).astype(np.float32)
        for dims in ((16, 16, 3, 3), (16, channels, 3, 3), (8, 16, 1, 1))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1] * 4),
        plugin.as_node(["a"], ["b"], "plugin"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="second", pads=[1] * 4),
        helper.make_node("Conv", ["c", "w2"], ["y"], name="third"),
    ]
    infos = [("x", (batch, 16, 8, 8)), ("y", (batch, 8, side, side))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in infos]
    held = [numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(weights)]
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(plugin.plugin_key().namespace, 1)]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def built(plugin, precision="fp32", **options):
    calibration = TABLE if precision in ("int8", "fp8") else None
    return ptp.build(
        network(plugin), engine="tensorrt_rtx", precision=precision, calibration=calibration, progress=False, **options
    )


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
    built(Raises(), "int8")
    (line,) = [line for name, line in layers().items() if "plugin" in name]
    assert "Int8" not in line


@pytest.mark.parametrize("method", ["output_dims", "output_dtypes", "supports_format", "workspace_size"])
def test_what_a_plugin_raises_arrives_as_it_was_raised(method, monkeypatch):
    monkeypatch.setattr(Raises, "armed", False)
    model = onnx.load_from_string(network(Raises(method=method), batch=2).SerializeToString())
    prepared = ptp.Graph(model)
    monkeypatch.setattr(Raises, "armed", True)
    with pytest.raises(ZeroDivisionError, match=f"mine, in {method}"):
        ptp.build(prepared, engine="tensorrt_rtx", progress=False)


def test_what_the_parser_refuses_is_named_with_its_node():
    node = helper.make_node("Det", ["x"], ["y"], name="the_node")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", (2, 3, 3)), ("y", (2,)))]
    model = helper.make_model(
        helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 18)]
    )
    with pytest.raises(BuildError, match="the_node"):
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
    with pytest.raises(
        UnavailableError, match=r"TensorRT for RTX 1\.\S+: IPluginV2DynamicExt: its parser takes IPluginV3 alone"
    ):
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
