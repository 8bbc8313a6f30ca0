"""Joined layers compute what PyTorch's layers compute, with gradients and statistics.

On a GPU, or in Triton's interpreter, which TRITON_INTERPRET=1 chooses when Triton is imported: so `test_yolov2_fused.py` runs this file
in a process of its own.
"""

from __future__ import annotations

import copy
import os

import pytest

from tests.samples.needs_torch import torch

pytest.importorskip("triton", reason="joined layers need Triton (pip install triton)")


from torch.nn import functional

from benchmarks.training import step_rows
from yolov2_training import fused
from yolov2_training.fused import probe
from yolov2_training.network import Yolov2, declare_layers

WIDTHS = ((16, 20, 8, 8, 8, 8), 8, 4, 2)  # the second pooling has channels that are no power of 2
EPSILON, SLOPE = 1e-5, 0.1


@pytest.fixture
def device():
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return torch.device("cpu" if interpreted else "cuda")


@pytest.fixture(autouse=True)
def few_programs(device, monkeypatch):
    """The interpreter takes a time for each program and tile: they get 1024 columns, not 16, and two tiles, not 8 or 16."""
    from yolov2_training.fused import first, pooling

    if device.type == "cpu":
        monkeypatch.setattr(first, "COLUMNS", 1024)
        for module in (first, pooling):
            monkeypatch.setattr(module, "TILES", 2)


def _types(device, images):
    """What the kernels compute with; in the interpreter, one for each number of images.

    The interpreter cannot multiply matrices of bfloat16; a GPU compiles those of float32 for minutes.
    """
    return [torch.float16, torch.bfloat16] if device.type == "cuda" else [(torch.float16, torch.float32)[images % 2]]


def _expected(y, scale, shift, gradient, leaves):
    """Batch norm, activation and pooling in float64; output, mean, variance and the gradients of the leaves."""
    norm = functional.batch_norm(y, None, None, scale, shift, True, 0.0, EPSILON)
    out = functional.max_pool2d(functional.leaky_relu(norm, SLOPE), 2)
    found = torch.autograd.grad(out, leaves, gradient.double())
    return [out, y.mean((0, 2, 3)), y.var((0, 2, 3), unbiased=False), *found]


def _compare(found, expected, kind) -> None:
    """Each tensor within the rounding of its type, relative to its norm."""
    close = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}[kind]
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours.shape == theirs.shape
        assert (ours.double() - theirs).norm() <= close * theirs.norm(), number


@pytest.mark.parametrize(
    ("images", "filters", "height", "width", "last"),
    [(2, 16, 32, 64, True), (3, 24, 10, 14, True), (1, 32, 34, 36, False), (1, 64, 6, 2, True)],
)
def test_the_first_block_is_convolution_norm_activation_and_pooling(
    device, images, filters, height, width, last
) -> None:
    from yolov2_training.fused.first import first_block

    torch.manual_seed(filters)
    for kind in _types(device, images):
        x = torch.rand(images, 3, height, width, device=device).to(kind)
        x = x.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
        weight = (0.3 * torch.randn(filters, 3, 3, 3, device=device)).to(kind).float()
        scale, shift = torch.randn(2, filters, device=device)  # also negative scales, which turn the order of values
        leaves = [leaf.requires_grad_() for leaf in (weight, scale, shift)]
        out, mean, variance, _ = first_block(x, *leaves, EPSILON, SLOPE)
        assert out.dtype == kind
        assert out.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
        gradient = torch.randn(out.shape, device=device).to(kind)
        found = [out, mean, variance, *torch.autograd.grad(out, leaves, gradient)]
        exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
        y = functional.conv2d(x.double(), exact[0], padding=1)
        _compare(found, _expected(y, exact[1], exact[2], gradient, exact), kind)


@pytest.mark.parametrize(("images", "channels", "height", "width"), [(2, 16, 32, 64), (3, 24, 10, 14), (1, 200, 6, 36)])
def test_norm_and_pool_is_norm_activation_and_pooling(device, images, channels, height, width) -> None:
    from yolov2_training.fused.pooling import norm_and_pool

    torch.manual_seed(channels)
    for kind in _types(device, images):
        x = (1 + 2 * torch.randn(images, channels, height, width, device=device)).to(kind)
        leaves = [leaf.requires_grad_() for leaf in (x, *torch.randn(2, channels, device=device))]
        out, statistics = norm_and_pool(*leaves, EPSILON, SLOPE)
        assert out.dtype == kind
        gradient = torch.randn(out.shape, device=device).to(kind)
        found = [out, *statistics[:2], *torch.autograd.grad(out, leaves, gradient)]
        exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
        _compare(found, _expected(exact[0], exact[1], exact[2], gradient, exact), kind)


def test_of_equal_values_the_first_gets_the_gradient(device) -> None:
    from yolov2_training.fused.pooling import norm_and_pool

    x = torch.ones(1, 16, 4, 4, device=device).requires_grad_()
    one, zero = torch.ones(16, device=device), torch.zeros(16, device=device)
    out, _ = norm_and_pool(x, one, zero + 1, 1.0, SLOPE)
    out.sum().backward()
    with torch.no_grad():
        found = x.grad - x.grad.mean((2, 3), keepdim=True)
    expected = torch.full((4, 4), -0.25, device=device)
    expected[::2, ::2] = 0.75
    torch.testing.assert_close(found, expected.expand_as(found))


def test_a_joined_network_is_the_plain_one(device) -> None:
    torch.manual_seed(0)
    plain = Yolov2(declare_layers(*WIDTHS)).to(device, memory_format=torch.channels_last)
    joined = copy.deepcopy(plain)
    fused.fuse(joined, device)
    kinds = [type(part).__name__ for part in joined.parts]
    assert (kinds.count("_First"), kinds.count("_Pooled"), kinds.count("MaxPool2d")) == (
        1,
        3,
        1,
    )  # a route needs the fifth's input
    assert list(joined.state_dict()) == list(plain.state_dict())
    assert len(joined.convolutions()) == len(plain.convolutions())
    half = torch.float16 if device.type == "cuda" else None  # else in float32
    x = torch.rand(2, 3, 64, 96 if half else 64, device=device).contiguous(memory_format=torch.channels_last)
    ours, theirs = (each.eval()(x) for each in (joined, plain))
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-3)
    joined.train(), plain.train()
    exact = copy.deepcopy(plain).double()
    expected = _learned(exact, x.double(), None)
    of_plain, of_joined = _learned(plain, x, half), _learned(joined, x, half)
    assert list(of_joined) == list(expected)
    for name, theirs in expected.items():  # a network of many layers amplifies rounding, in either form
        ours, other = ((found[name].double() - theirs).norm() for found in (of_joined, of_plain))
        assert ours <= 2 * other + (0.05 if half else 1e-4) * theirs.norm(), name


def test_joined_layers_can_be_taken_apart_again(device) -> None:
    network = Yolov2(declare_layers(*WIDTHS)).to(device)
    names, kinds = list(network.state_dict()), [type(part) for part in network.parts]
    fused.fuse(network, device)
    assert [type(part) for part in network.parts] != kinds
    step_rows.apart(network)
    assert [type(part) for part in network.parts] == kinds
    assert list(network.state_dict()) == names


def _learned(network, x, half):
    """What the layers of a network's first part put out, the gradients of its parameters, and its statistics after one step."""
    with torch.autocast(x.device.type, half, enabled=half is not None):
        out = network.begin(x if half is None else x.to(half))
    weights = torch.linspace(-1, 1, out.numel(), device=x.device, dtype=torch.float64).view_as(out)
    (out.double() * weights).sum().backward()
    found = {"out": out.detach()}
    found |= {f"gradient of {name}": p.grad for name, p in network.named_parameters() if p.grad is not None}
    return found | {name: buffer for name, buffer in network.named_buffers() if buffer.is_floating_point()}


def test_filters_that_do_not_fit_into_registers_leave_the_first_convolution_to_pytorch(device) -> None:
    wide = Yolov2(declare_layers((80, 8, 8, 8, 8, 8), 8, 4, 2))
    fused.fuse(wide, device)
    assert [type(part).__name__ for part in wide.parts[:2]] == ["_Pooled", "Identity"]


def test_without_triton_nothing_is_joined(device, monkeypatch) -> None:
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    assert _joins_nothing(device)


def test_where_triton_does_not_work_nothing_is_joined_and_a_warning_says_why(device, monkeypatch) -> None:
    def fail(_):
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(probe, "run_a_kernel", fail)
    with pytest.warns(UserWarning, match="RuntimeError: no C compiler\nDo: install a C compiler"):
        assert _joins_nothing(device)


def _joins_nothing(device) -> bool:
    network = Yolov2(declare_layers(*WIDTHS))
    fused.fuse(network, device)
    return not any(isinstance(part, fused.Joined) for part in network.parts)
