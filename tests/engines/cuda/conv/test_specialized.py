"""Kernels of one convolution with its sizes compiled in."""

from types import SimpleNamespace

from pytrtplugins.engines.cuda.conv.specialized import fixed_launch
from pytrtplugins.engines.cuda.device.device import HostDevice
from tests.engines.cuda.conv.test_cudnn import operands, problem


def test_the_kernel_is_loaded_before_its_first_launch_which_may_be_captured():
    calls = []
    kernel = SimpleNamespace(load=lambda: calls.append("load"), launch=lambda arrays, stream: calls.append("launch"))
    launch = fixed_launch(HostDevice(), kernel, problem(), None, operands())
    assert calls == ["load"]
    tensor = SimpleNamespace(flat=None)
    launch(tensor, tensor, None, None)
    assert calls == ["load", "launch"]
