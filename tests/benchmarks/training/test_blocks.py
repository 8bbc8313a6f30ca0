"""Convolutions and poolings on blocks compute what they compute on pixels, forward and backward."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

from benchmarks.training import blocks, subject  # noqa: E402
from tests.samples.rectangles import tiny_network  # noqa: E402
from training.ranks import Ranks  # noqa: E402


def both(network):
    blocks.first_in_blocks(network)
    blocks.compare_pools(network)


def test_weights_of_blocks_give_the_convolution_of_pixels() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 8, 6), torch.randn(5, 3, 3, 3)
    wanted = torch.nn.functional.conv2d(x, weight, padding=1)
    unshuffled = torch.nn.functional.pixel_unshuffle(x, 2)
    found = torch.nn.functional.conv2d(unshuffled, blocks.weight_of_blocks(weight), padding=1)
    found = found.unflatten(1, (4, 5)).transpose(1, 2).flatten(1, 2)  # as pixel_shuffle has its channels
    torch.testing.assert_close(torch.nn.functional.pixel_shuffle(found, 2), wanted, rtol=0, atol=1e-5)


def test_equal_values_give_their_gradient_to_the_first_one() -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 3, (2, 3, 8, 8)).float().requires_grad_()
    wanted = torch.nn.functional.max_pool2d(x, 2)
    found = blocks.largest([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)])
    assert torch.equal(found, wanted)
    gradient = torch.rand_like(wanted)
    assert torch.equal(*(torch.autograd.grad(each, x, gradient)[0] for each in (found, wanted)))


@pytest.mark.parametrize("change", [blocks.first_in_blocks, blocks.compare_pools, both])
def test_the_network_stays_what_it_is(change) -> None:
    plain = tiny_network().double().train()
    other = copy.deepcopy(plain)
    change(other)
    assert list(other.state_dict()) == list(plain.state_dict())
    torch.manual_seed(1)
    x, found = torch.rand(2, 3, 64, 96, dtype=torch.float64), []
    for network in (plain, other):
        out = network(x)
        (out * torch.linspace(0, 1, out.numel()).view_as(out)).sum().backward()
        found.append([out, *(parameter.grad for parameter in network.parameters()), *network.buffers()])
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_another_beginning_is_refused() -> None:
    network = tiny_network()
    network.parts[1] = torch.nn.Identity()
    with pytest.raises(ValueError, match="does not begin with a convolution"):
        blocks.first_in_blocks(network)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_step_in_blocks_compiles_without_a_break() -> None:
    loop = subject.make_loop("compact", 2, [64], Ranks(0, 1, torch.device("cpu"), False))
    both(loop.task.network)
    found = torch._dynamo.explain(loop.task.network.forward_with_features)(torch.rand(2, 3, 64, 64))
    assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons
