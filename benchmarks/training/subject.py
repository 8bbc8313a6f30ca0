"""What the steps and the modes are timed with: the tasks of the samples, on photos that are drawn on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_PHOTOS, _BOXES, _BATCHES = 256, 6, 4
_CLASSES = 1000  # of a classifier
CLASSES = ("person", "dog", "cat", "horse", "cow", "sheep")
CHECKED = 3  # steps whose losses are compared
WARM_UPS = 5  # steps before the clock runs
_STEPS = 1 << 30  # of a schedule that no row ends


@dataclass(frozen=True)
class Asked:
    """A batch of which only the number of photos is asked: they are drawn from the pool."""

    keys: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.keys)


class Batches:
    """A loader whose batches lie on the device: for a task that makes an image of each photo of its batch.

    Args:
        batch: Photos of one.
        side: Width and height of the square in which they are stored.
        classes: That they have.
        device: Where.
    """

    def __init__(self, batch: int, side: int, classes: int, device: Any) -> None:
        import torch

        from training.batch import Batch
        from training.clock import Clock

        self.clock, self._step, self._batches = Clock(), 0, []
        generator = torch.Generator().manual_seed(0)
        for number in range(_BATCHES):
            pixels = torch.randint(0, 256, (batch, side, side, 3), dtype=torch.uint8, generator=generator).to(device)
            boxes = torch.full((batch, 1, 5), 0.5)
            boxes[:, 0, 0] = torch.randint(0, classes, (batch,), generator=generator)
            size, valid = torch.full((batch, 2), float(side)), torch.ones(batch, 1, dtype=torch.bool)
            rest = (tensor.to(device) for tensor in (size, boxes, valid))
            self._batches.append(Batch(number, pixels.permute(0, 3, 1, 2), *rest, ("",) * batch))

    def next(self) -> Any:
        """The next step's photos."""
        self._step += 1
        return self._batches[self._step % _BATCHES]


class Pool:
    """A loader whose photos lie on the device, so that a step never waits for it."""

    def __init__(self, batch: int) -> None:
        from training.clock import Clock

        self.clock, self._batch = Clock(), Asked(("",) * batch)

    def next(self) -> Asked:
        """The next step's photos."""
        return self._batch


def make_loop(
    network: str, batch: int, sizes: Sequence[int], ranks: Any, *, shared: bool = False, **settings: Any
) -> Any:
    """The engine's loop over YOLOv2, without dropout, whose lots compilers draw otherwise; or over a classifier of torchvision.

    Args:
        network: "compact" or "voc", of YOLOv2; or a name of torchvision.
        batch: Photos a step of this rank.
        sizes: Widths and heights of the network's input, in pixels; one is drawn a step.
        ranks: The processes.
        shared: Whether the loss is normalized by the boxes of all ranks together.
        settings: Of the engine.
    """
    import torch

    from training.loop import Loop
    from training.schedule import Schedule
    from training.settings import Settings
    from yolov2_training.recipe import NETWORKS, Recipe
    from yolov2_training.task import Detection

    how = Settings(**settings)
    if network not in NETWORKS:
        return _classifier_loop(network, batch, sizes[0], ranks, how)
    recipe = Recipe(steps=_STEPS, batch=batch, sizes=tuple(sizes), dropout=0.0, **NETWORKS[network])
    anchors = torch.tensor([[1.0, 1.0], [2.0, 3.0], [4.0, 3.0], [5.0, 7.0], [9.0, 9.0]]) * sizes[0] / 416
    task = Detection(recipe, CLASSES, anchors, how, ranks.device, ranks=ranks if shared else None)
    task.draw_from(make_pool(max(sizes), ranks.device))
    adam: Any = (torch.optim.AdamW, {"fused": True})
    return Loop(task, Pool(batch), how, ranks, Schedule(recipe.steps, recipe.learning_rate), optimizer=adam)


def _classifier_loop(network: str, batch: int, size: int, ranks: Any, how: Any) -> Any:
    """The engine's loop over a classifier."""
    import torch
    from classifier_training.recipe import Recipe
    from classifier_training.task import Classification

    from training.loop import Loop
    from training.schedule import Schedule

    recipe = Recipe(steps=_STEPS, batch=batch, size=size)
    task = Classification(network, recipe, tuple(map(str, range(_CLASSES))), how, ranks.device)
    loader = Batches(batch, recipe.side, _CLASSES, ranks.device)
    momentum: Any = (torch.optim.SGD, {"momentum": recipe.momentum, "nesterov": True, "fused": True})
    return Loop(task, loader, how, ranks, Schedule(recipe.steps, recipe.learning_rate), optimizer=momentum)


def make_pool(size: int, device: Any) -> Any:
    """Photos of noise, each with a few boxes; the same ones each time."""
    import numpy as np
    import torch

    from training.batch import Pool as Photos

    rng, side = np.random.default_rng(0), max(32, size * 11 // 13)  # 352 of 416
    low = rng.random((_PHOTOS, _BOXES, 2)) * side * 0.6
    high = low + side * (0.1 + 0.3 * rng.random((_PHOTOS, _BOXES, 2)))
    kinds = rng.integers(0, len(CLASSES), (_PHOTOS, _BOXES, 1))
    boxes = torch.from_numpy(np.concatenate([kinds, low, high], 2)).float()
    pixels = torch.from_numpy(rng.integers(0, 256, (_PHOTOS, side, side, 3), np.uint8))
    sizes = torch.full((_PHOTOS, 2), float(side))
    return Photos(*(tensor.to(device) for tensor in (pixels, sizes, boxes)))


def first_losses(loop: Any, advance: Callable[[], Any]) -> list[float]:
    """The losses of the first steps, one after the other."""
    places = [i for i, name in enumerate(loop.task.parts) if name not in ("imitation", "correct")]
    losses: list[float] = []
    for _ in range(CHECKED):
        advance()
        losses += loop.last[places].tolist()
    return losses


def largest_difference(found: list[float], expected: list[float]) -> float:
    """The largest one relative to what is expected."""
    return max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))


def timed(advance: Callable[[], Any], wait: Callable[[], None], seconds: float, ranks: Any = None) -> tuple[int, float]:
    """Steps, and the seconds that they took, after some that are not counted; several ranks do the same number of steps."""
    for _ in range(WARM_UPS):
        advance()
    wait()
    begin = time.perf_counter()
    for _ in range(WARM_UPS):
        advance()
    wait()
    step = (time.perf_counter() - begin) / WARM_UPS
    if ranks is not None:
        (step,) = ranks.agree([step])
    steps = max(1, round(seconds / step))
    wait()
    begin = time.perf_counter()
    for number in range(steps):
        advance()
        if number % 20 == 19:
            wait()
    wait()
    return steps, time.perf_counter() - begin


def wait_for(device: Any) -> Callable[[], None]:
    """What waits for a device."""
    import torch

    return (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)
