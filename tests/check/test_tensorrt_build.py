"""The check "TensorRT builds it": a small network with the plugin goes through TensorRT's parser and builder."""

import importlib.util
import os
import subprocess
import sys

import pytest

import pytrtplugins as ptp
from pytrtplugins.check.cases import Case
from pytrtplugins.check.report import Remark
from pytrtplugins.check.steps import Step, StepRunner
from pytrtplugins.layers import Reorg
from pytrtplugins.tensor import DType
from tests.broken_plugins import Double

NAME = "TensorRT builds it"
INSTALLED = importlib.util.find_spec("tensorrt_rtx_bindings") is not None
needs_rtx = pytest.mark.skipif(not INSTALLED, reason="TensorRT for RTX is not installed. Do: make test-tensorrt")
SHAPES = [(1, 4, 2, 2)]


def entry_of(plugin, shapes=SHAPES):
    return ptp.check_plugin(plugin, shapes=shapes, engines=[])[NAME]


@pytest.mark.skipif(INSTALLED, reason="TensorRT for RTX is installed")
def test_where_tensorrt_is_not_installed_the_entry_has_the_command_that_installs_it():
    entry = entry_of(Reorg(stride=2))
    assert entry.skipped
    assert entry.detail.endswith('Do: pip install "pytrtplugins[rtx]"')


def test_a_remark_of_a_rule_is_a_warning_with_its_first_case():
    plugin = Reorg(stride=2)
    steps = StepRunner(plugin, 30.0)
    cases = [Case(plugin, ((1, 4, 2, size),), (DType.FLOAT32,)) for size in (2, 4, 6)]
    steps.take([Step("rule", lambda case: Remark("slow") if case.dims[0][3] > 2 else "", cases)])
    entry = steps.entries["rule"]
    assert (entry.state, entry.detail) == ("WARNING", "Reorg(stride=2, reverse=False) on float32[1, 4, 2, 4]: slow")
    assert entry.tried.startswith("3 cases")


@needs_rtx
def test_a_plugin_that_tensorrt_builds_passes():
    entry = entry_of(Reorg(stride=2))
    assert (entry.state, entry.detail) == ("ok", "")


@ptp.plugin(namespace="test.check.tensorrt")
class Takes(Double):
    """Right."""


@ptp.plugin(namespace="test.check.tensorrt")
class RefusesOtherLayouts(Double):
    """Raises when TensorRT asks for a layout that nobody else asks for."""

    def supports_format(self, position, descs):
        if descs[position].layout not in ("linear", "nhwc"):
            raise KeyError(f"no {descs[position].layout}")
        return descs[position].layout == "linear"


@ptp.plugin(namespace="test.check.tensorrt")
class EndsTheProcess(Double):
    """Ends the process at such a question."""

    def supports_format(self, position, descs):
        if descs[position].layout not in ("linear", "nhwc"):
            os.abort()
        return descs[position].layout == "linear"


@needs_rtx
def test_what_only_tensorrt_asks_is_asked_and_what_the_plugin_raises_is_the_failure():
    entry = entry_of(RefusesOtherLayouts())
    assert not entry.ok
    assert "fp32: KeyError: 'no chw" in entry.detail


@needs_rtx
def test_what_tensorrt_says_is_part_of_the_failure():
    entry = entry_of(Takes(), [(1, 2) + (1,) * 7])  # it has tensors of up to eight axes
    assert not entry.ok
    assert "fp32: BuildError: TensorRT" in entry.detail
    assert "Failed to convert ONNX dimensions to TensorRT dimensions" in entry.detail


@needs_rtx
def test_a_build_that_ends_the_process_is_a_failure():
    entry = entry_of(EndsTheProcess())
    assert not entry.ok
    assert "crash: the process ends with SIGABRT" in entry.detail


@needs_rtx
def test_the_callers_process_does_not_load_tensorrt():
    program = (
        "import sys, pytrtplugins as ptp; from pytrtplugins.layers import Reorg\n"
        f"ptp.check_plugin(Reorg(stride=2), shapes={SHAPES}, engines=[])\n"
        "print('tensorrt_rtx_bindings' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
