"""The learning rate of each step, and the averaged weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["WARM_UP", "Average", "Schedule", "full", "local"]

WARM_UP = 0.03
"""Share of a schedule in which the rate rises."""
_RAMP_STEPS = 1000  # in which the average slows down to its decay


@dataclass(frozen=True)
class Schedule:
    """Warm-up, then a cosine; counted in steps, so that a resumed run follows it.

    Fields:
        steps: Length.
        peak: Largest rate.
        warm_up: Share of the steps in which the rate rises.
        least: Last rate, as a share of the peak.
    """

    steps: int
    peak: float
    warm_up: float = WARM_UP
    least: float = 0.01

    def progress(self, step: int) -> float:
        """Share of the schedule that is done."""
        return step / self.steps

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        progress = self.progress(step)
        cosine = self.least + (1 - self.least) * (1 + math.cos(math.pi * progress)) / 2
        return self.peak * min(1.0, (progress + 1e-6) / self.warm_up) * cosine


class Average:
    """Moving average of a network's weights and statistics; of each rank's shard if they are sharded.

    Args:
        network: In its final form: sharded, and on its device.
        decay: Of the average, after its first thousand steps.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        now = network.state_dict()
        self.state = {name: tensor.detach().clone() for name, tensor in now.items()}
        names = [name for name, tensor in now.items() if tensor.dtype.is_floating_point]
        self._target = [local(self.state[name]) for name in names]
        self._source = [local(now[name]) for name in names]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move a little towards the current weights; faster in the beginning."""
        weight = 1 - self.decay * (1 - math.exp(-(step + 1) / _RAMP_STEPS))
        torch._foreach_lerp_(self._target, self._source, weight)

    def full(self) -> dict[str, Tensor]:
        """The whole average; where it is sharded, all ranks must ask."""
        return {name: full(tensor) for name, tensor in self.state.items()}


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def full(tensor: Tensor) -> Tensor:
    """The whole tensor; where it is sharded, all ranks must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
