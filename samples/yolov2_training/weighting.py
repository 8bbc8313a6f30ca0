"""How much a rank's part of a batch counts, where several ranks share the batch and their photos have unequal numbers of boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from training.ranks import Ranks

__all__ = ["Weighting"]


class Weighting:
    """Weights the gradient of a rank's loss, so that the mean over ranks is the gradient of the whole batch's loss.

    A rank divides the sums of its loss by its own count of targets, which is known late in the forward computation. So the weight, its count
    relative to the mean of all ranks', is applied to the gradient of the network's output: ranks exchange their counts while they compute
    the gradient of the loss, and do not wait for each other before.

    Args:
        ranks: Those that share a batch.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._weight: Callable[[], Tensor] | None = None

    def enter(self, out: Tensor) -> Tensor:
        """The network's output in float32, whose gradient will be weighted."""
        return _Weighted.apply(out.float(), self)  # type: ignore[no-any-return]

    def begin(self, count: Tensor) -> None:
        """Begin to exchange the count of a batch's targets."""
        self._weight = self._ranks.share(count)

    def wait(self) -> Tensor:
        """The weight."""
        if self._weight is None:
            raise RuntimeError("a gradient is asked for before the targets were counted")
        return self._weight()


class _Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor, weighting: Weighting) -> Tensor:
        ctx.weighting = weighting
        return out.view_as(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.weighting.wait(), None
