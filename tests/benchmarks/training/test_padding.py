"""Convolutions with padded channels are the plain ones, in values, gradients and parameters."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

from benchmarks.training import padding  # noqa: E402
from yolov2_training import network  # noqa: E402


def test_the_changed_network_is_the_plain_one() -> None:
    torch.manual_seed(0)
    plain = network.Yolov2(network.declare_layers((4, 4, 8, 8, 8, 8), 8, 4, 6)).double()
    plain = plain.to(memory_format=torch.channels_last)
    changed = copy.deepcopy(plain)
    padding.pad_last(changed)
    assert [type(m) for m in plain.modules()] != [type(m) for m in changed.modules()]
    x = torch.rand(2, 3, 64, 96, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    outs = []
    for net in (plain, changed):
        outs.append(net(x))
        (outs[-1] * torch.linspace(0, 1, outs[-1].numel(), dtype=x.dtype).view_as(outs[-1])).sum().backward()
    torch.testing.assert_close(outs[1], outs[0], rtol=1e-9, atol=1e-12)
    found = dict(changed.named_parameters())
    assert list(found) == [name for name, _ in plain.named_parameters()]
    for name, parameter in plain.named_parameters():
        assert found[name].shape == parameter.shape
        torch.testing.assert_close(found[name].grad, parameter.grad, rtol=1e-7, atol=1e-10)
