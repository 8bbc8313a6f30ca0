"""Other ways to compute convolutions whose channels are no multiple of 8, with the same parameters: rows of `steps`."""

from __future__ import annotations

from typing import Any

_EIGHT = 8  # channels, of which tensor cores take a multiple in BF16


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
    """The first convolution becomes a matrix product: of each pixel's 27 neighbours, and zeros up to 32."""
    import torch
    from torch.nn import functional

    class Unfolded(torch.nn.Conv2d):
        def forward(self, x: Any) -> Any:
            (high, wide), (height, width) = self.kernel_size, x.shape[2:]
            around = functional.pad(x, (wide // 2, wide // 2, high // 2, high // 2))
            parts = [around[:, :, i : i + height, j : j + width] for i in range(high) for j in range(wide)]
            more = -len(parts) * self.in_channels % _EIGHT
            columns = torch.cat([*parts, x.new_zeros(len(x), more, height, width)], 1)
            weight = functional.pad(self.weight.permute(0, 2, 3, 1).flatten(1), (0, more))
            return functional.conv2d(columns, weight[..., None, None], self.bias)

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
