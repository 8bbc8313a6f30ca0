"""Other ways to compute the first convolution and the poolings, on blocks of 2 x 2 pixels, with the same parameters: rows of `steps`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

_EIGHT = 8  # channels, of which tensor cores take a multiple in BF16
_PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))  # row and column in a block


def first_in_blocks(network: Any) -> None:
    """The first convolution, its batch norm and its pooling see blocks of 2 x 2 pixels as channels.

    A photo of 3 channels has 12 then, in a quarter of the places, and each place gives the outputs of its four pixels: enough channels for
    tensor cores, though three quarters of the weights are zeros. Of the four outputs the pooling takes the largest, at the same place.
    """
    import torch
    from torch.nn import functional

    class InBlocks(torch.nn.Sequential):
        def forward(self, x: Any) -> Any:
            convolution, norm, activation = self
            blocks = functional.pixel_unshuffle(x, 2)
            more = (0, 0, 0, 0, 0, -blocks.shape[1] % _EIGHT)
            weight = functional.pad(weight_of_blocks(convolution.weight), more)
            out = functional.conv2d(functional.pad(blocks, more), weight, padding=1)
            apart = out.unflatten(1, (len(_PLACES), -1)).transpose(1, 2)
            return largest(activation(norm(apart)).unbind(2))

    first, pool = network.parts[:2]
    if first[0].kernel_size != (3, 3) or not isinstance(pool, torch.nn.MaxPool2d):
        raise ValueError("the network does not begin with a convolution of 3 x 3 and a pooling")
    first.__class__, first[1].__class__ = InBlocks, torch.nn.BatchNorm3d  # which takes blocks as its depth
    network.parts[1] = torch.nn.Identity()


def weight_of_blocks(weight: Any) -> Any:
    """The weights (4F, 4C, 3, 3) with which a convolution of blocks computes what weights (F, C, 3, 3) compute of pixels.

    For each place in a block the kernel is put into the 6 x 6 pixels of the block and those around it.
    """
    import torch
    from torch.nn import functional

    placed = [functional.pad(weight, (x + 1, 2 - x, y + 1, 2 - y)) for y, x in _PLACES]
    return torch.cat([functional.pixel_unshuffle(each, 2) for each in placed])


def compare_pools(network: Any) -> None:
    """Poolings compare the four pixels of a block, which compilers join with what stands before and behind them."""
    import torch

    class Compared(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return largest([x[:, :, row::2, column::2] for row, column in _PLACES])

    for i, part in enumerate(network.parts):
        if isinstance(part, torch.nn.MaxPool2d):
            network.parts[i] = Compared()


def largest(parts: Sequence[Any]) -> Any:
    """The largest of tensors, element by element; of equal ones the first gets the gradient, as in a pooling."""
    import torch

    return reduce(lambda best, each: torch.where(each > best, each, best), parts)
