"""Other ways to compute convolutions whose channels are no multiple of 8, with the same parameters: rows of `steps`."""

from __future__ import annotations

from typing import Any

_EIGHT = 8  # channels, of which tensor cores take a multiple in BF16
_STRIPES = 16  # of a photo, whose height is a multiple of 32


def pad_first(network: Any) -> None:
    """The first convolution gets channels of zeros beside the three of a photo."""
    import torch
    from torch.nn import functional

    class Padded(torch.nn.Conv2d):
        def forward(self, x: Any) -> Any:
            more = (0, 0, 0, 0, 0, -self.in_channels % _EIGHT)
            weight = functional.pad(self.weight, more)
            return functional.conv2d(functional.pad(x, more), weight, self.bias, self.stride, self.padding)

    network.convolutions()[0][0].__class__ = Padded


def unfold_first(network: Any) -> None:
    """The first convolution becomes matrix products: of each pixel's 27 neighbours, and zeros up to 32.

    Each product is of a sixteenth of a photo. So the gradient of the weights, sums of millions of products for few numbers, is made of
    many small sums, which all multiprocessors share.
    """
    import torch
    from torch.nn import functional

    class Unfolded(torch.nn.Conv2d):
        def forward(self, x: Any) -> Any:
            high, wide = self.kernel_size
            around = functional.pad(x, (wide // 2, wide // 2, high // 2, high // 2))
            columns = around.unfold(2, high, 1).unfold(3, wide, 1).permute(0, 2, 3, 4, 5, 1).flatten(3)  # (N, H, W, 27)
            more = 0, -columns.shape[3] % _EIGHT
            rows = functional.pad(columns, more).view(_STRIPES * len(x), -1, columns.shape[3] + more[1])
            weight = functional.pad(self.weight.permute(0, 2, 3, 1).flatten(1), more)
            out = torch.bmm(rows, weight.t().expand(len(rows), -1, -1))
            return out.view(len(x), *x.shape[2:], -1).movedim(3, 1)  # still channels last in memory

    network.convolutions()[0][0].__class__ = Unfolded


def pad_last(network: Any) -> None:
    """The last convolution gets filters of zeros, whose output is cut off."""
    import torch
    from torch.nn import functional

    class Padded(torch.nn.Conv2d):
        def forward(self, x: Any) -> Any:
            more = -self.out_channels % _EIGHT
            weight = functional.pad(self.weight, (0, 0, 0, 0, 0, 0, 0, more))
            out = functional.conv2d(x, weight, functional.pad(self.bias, (0, more)))
            return out[:, : self.out_channels]

    network.convolutions()[-1][0].__class__ = Padded
