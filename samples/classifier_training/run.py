"""A run of a classifier: its photos, its measurements, and its files."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.atomic import write_atomic
from pytrtplugins.utils.override import override
from training import run
from training.batch import Pool
from training.data import Records, load_photos

from .data import open_classes
from .model import Model, check_network, load_model, save_model, write_onnx
from .recipe import Recipe
from .task import Classification, middle

__all__ = ["Run", "top_shares"]

_PART = 128  # images that are looked at together
_BEST = 5


class Run(run.Run):
    """A run of a classifier, in this process. See `training.run.Run`."""

    recipes, score, results = Recipe, "top1", "model.onnx, model.names, model.pt"
    recipe: Recipe
    task: Classification

    @override
    def open(self) -> Records:
        return open_classes(self.options.data)

    @override
    def prepare(self) -> None:
        check_network(self.options.model, len(self.data.classes), self.recipe.size)
        self.start = None if self.options.start is None else load_model(self.options.start)
        start, now = self.start, (self.options.model, self.data.classes)
        if start is not None and (start.name, start.classes) != now:
            raise UsageError(
                f"--start {self.options.start}: another network, or other classes: {start.name}, {', '.join(start.classes[:9])}.\n"
                f"Do: give --model {start.name}, and photos of its classes"
            )

    @override
    def load_held_back(self, photos: Records) -> None:
        self.held = load_photos(photos, self.ranks.device, side=self.recipe.side, skip_bad=self.options.skip_bad)

    @override
    def make_task(self) -> Classification:
        return Classification(
            self.options.model, self.recipe, self.data.classes, self.settings, self.ranks.device, self.start
        )

    @override
    def stored_side(self) -> int:
        return self.recipe.side

    @override
    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        momentum, whole = self.recipe.momentum, self.settings.variable_update != "parameter_server"
        # PyTorch's fused kernel takes no parameters of which each rank has a part
        return torch.optim.SGD, {"momentum": momentum, "nesterov": momentum > 0, "fused": whole}

    @override
    def identity(self) -> dict[str, Any]:
        return {"model": self.options.model}

    @override
    def measure(self, average: dict[str, Tensor]) -> tuple[dict[str, float], str]:
        first, best = top_shares(self.task.model(average), self.held)
        return {"top1": first, f"top{_BEST}": best}, f"held back: top-1 {first:.3f}, top-{_BEST} {best:.3f}"

    @override
    def write(self, average: dict[str, Tensor]) -> None:
        model, out = self.task.model(average), self.options.out
        save_model(out / "model.pt", model)
        write_atomic(out / "model.names", "".join(f"{name}\n" for name in model.classes).encode())
        write_onnx(out / "model.onnx", model)


@torch.no_grad()
def top_shares(model: Model, photos: Pool) -> tuple[float, float]:
    """Shares of the photos whose class has the largest logit, and one of the five largest, in float32.

    Args:
        model: On the photos' device.
        photos: With one box each, whose classes are the model's.
    """
    places = []
    for pixels, sizes, boxes in zip(
        photos.pixels.split(_PART), photos.size.split(_PART), photos.boxes.split(_PART), strict=True
    ):
        logits = model.network(middle(pixels.permute(0, 3, 1, 2), sizes, model.size))
        own = logits.gather(1, boxes[:, :1, 0].long())
        places.append((logits > own).sum(1))
    place = torch.cat(places)
    return (place < 1).float().mean().item(), (place < _BEST).float().mean().item()
