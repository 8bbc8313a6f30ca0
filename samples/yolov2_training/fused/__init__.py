"""Layers of a YOLOv2 that is trained on a GPU, joined where PyTorch would read and write their feature maps once each."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..network import Yolov2

__all__ = ["Joined", "fuse"]


def fuse(network: Yolov2, device: torch.device) -> None:
    """Join convolutions, their batch norms and activations with the poolings behind them, for training in FP16 or BF16.

    Parameters, statistics and their names stay. Where Triton is missing, nothing is joined: PyTorch has it on Linux. Where Triton does not
    work, neither, and a warning says why.

    Args:
        network: Is changed. What a teacher or another layer needs of it stays a layer of its own.
        device: Where it will be trained.
    """
    if find_spec("triton") is None:
        return
    try:
        from .probe import run_a_kernel

        run_a_kernel(device)
    except Exception as error:  # of Triton, of the compiler that it calls, or of the driver
        warnings.warn(
            f"layers are not joined, and training is slower: Triton compiles no kernel on {device}: {type(error).__name__}: {error}\n"
            "Do: install a C compiler and Python's headers (on Debian: apt install gcc python3-dev)",
            stacklevel=2,
        )
        return
    for i, (block, pool) in enumerate(zip(network.parts, network.parts[1:], strict=False)):
        if isinstance(pool, nn.MaxPool2d) and not network.keeps(i):
            joined = _First if _takes_photos(block[0]) else _Pooled
            network.parts[i], network.parts[i + 1] = joined(*block), nn.Identity()


def _takes_photos(convolution: nn.Conv2d) -> bool:
    from .first import LARGEST

    shape = convolution.in_channels, convolution.kernel_size, convolution.padding, convolution.stride
    return shape == (3, (3, 3), (1, 1), (1, 1)) and convolution.out_channels <= LARGEST


class Joined(nn.Sequential, ABC):
    """A convolution, a batch norm and a leaky ReLU, which also do the pooling behind them."""

    def forward(self, x: Tensor) -> Tensor:
        """The pooled feature map."""
        if not self.training:
            return functional.max_pool2d(super().forward(x), 2)
        out, mean, variance, count = self._train(x)
        with torch.no_grad():
            norm = self[1]
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * (count / max(1, count - 1)), norm.momentum)
            norm.num_batches_tracked.add_(1)
        return out

    @abstractmethod
    def _train(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        """The pooled map; mean and variance of the convolution's outputs, and how many they are a filter."""


class _First(Joined):
    def _train(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        from .first import first_block

        convolution, norm, activation = self
        if torch.is_autocast_enabled(x.device.type):  # as a convolution does
            x = x.to(torch.get_autocast_dtype(x.device.type))
        numbers = norm.weight, norm.bias, norm.eps, activation.negative_slope
        out, mean, variance, _ = first_block(x, convolution.weight, *numbers)
        return out, mean, variance, x.numel() // x.shape[1]


class _Pooled(Joined):
    def _train(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        from .pooling import norm_and_pool

        convolution, norm, activation = self
        x = convolution(x)
        out, statistics = norm_and_pool(x, norm.weight, norm.bias, norm.eps, activation.negative_slope)
        return out, *statistics[:2], x.numel() // x.shape[1]
