"""A tiny task of the training engine, in float64: what ranks compute together is compared with one process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[3] / "samples"))

from training.loop import Loop
from training.ranks import Ranks
from training.schedule import Schedule
from training.settings import Settings

BATCH = 8
STEPS = 6
SGD: Any = (torch.optim.SGD, {"momentum": 0.9})
ADAM: Any = (torch.optim.AdamW, {})


class Toy:
    """A perceptron, whose loss is a mean over photos: so the mean of the ranks' gradients is that of the whole batch."""

    parts = ("error",)

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.ModuleList([nn.Linear(5, 7), nn.Linear(7, 3)])

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            first, second = self.network
            loss = (second(first(x).tanh()) - y).square().mean()
            return loss, torch.stack([loss])

    def __init__(self) -> None:
        torch.manual_seed(7)
        self.module = self.Module().double()
        self.network = self.module.network
        self.poisoned = -1

    def inputs(self, batch: Any, step: int) -> tuple[int, tuple[Tensor, ...]]:
        x, y = batch.rows[:, :5], batch.rows[:, 5:]
        return step, ((x * float("nan") if step == self.poisoned else x), y)

    def draw(self, shape: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        return inputs

    def drawn(self, keys: Sequence[str], step: int) -> Sequence[str]:
        return keys

    def groups(self) -> list[dict[str, Any]]:
        every = list(self.module.parameters())
        return [
            {"params": [p for p in every if p.ndim > 1], "weight_decay": 0.01},
            {"params": [p for p in every if p.ndim <= 1], "weight_decay": 0.0},
        ]


class SingleToy(Toy):
    """The same in float32, whose targets overflow FP16 at one step."""

    def __init__(self, overflow: int = -1) -> None:
        super().__init__()
        self.module.float()
        self.overflow = overflow

    def inputs(self, batch: Any, step: int) -> tuple[int, tuple[Tensor, ...]]:
        step, (x, y) = super().inputs(batch, step)
        return step, (x.float(), y.float() * (1e6 if step == self.overflow else 1))


def rows_of(step: int) -> Tensor:
    """The rows of all ranks: five inputs and three targets."""
    return torch.from_numpy(np.random.default_rng(step).standard_normal((BATCH, 8)))


class Rows:
    """A loader: the rows of a step are a function of the step, and ranks share them."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self.loop, self.clock = ranks, None, SimpleNamespace(stage=_no_stage)

    def next(self) -> Any:
        step = self.loop.step
        whole = rows_of(step)
        share = BATCH // self.ranks.world
        mine = range(self.ranks.rank * share, (self.ranks.rank + 1) * share)
        return SimpleNamespace(rows=whole[mine.start : mine.stop], keys=[f"photo-{step}-{i}" for i in mine])


@contextmanager
def _no_stage(_: str):
    yield


def make(
    ranks: Ranks | None = None,
    optimizer: Any = SGD,
    steps: int = STEPS,
    task: Toy | None = None,
    epoch: int = 0,
    warn: Any = print,
    **settings: Any,
) -> Loop:
    ranks = ranks or Ranks(0, 1, torch.device("cpu"), False)
    rows = Rows(ranks)
    schedule = Schedule(steps, 0.1, warm_up=0.3)
    how = Settings(**settings)
    rows.loop = Loop(task or Toy(), rows, how, ranks, schedule, optimizer=optimizer, decay=0.9, epoch=epoch, warn=warn)
    return rows.loop


def advance(loop: Loop, steps: int) -> Loop:
    for _ in range(steps):
        loop.advance()
    return loop


def state(loop: Loop) -> dict[str, Tensor]:
    """All that a run has learnt, whole."""
    from training.schedule import full

    found = {f"module.{name}": full(tensor).detach().clone() for name, tensor in loop.task.module.state_dict().items()}
    return found | {f"average.{name}": tensor.clone() for name, tensor in loop.average.full().items()}


def difference(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def keys(loop: Loop) -> Sequence[str]:
    return loop.loader.next().keys
