"""One optimizer step, the schedule around it, and checkpoints that continue it exactly."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.utils.files import atomic_path
from training.augment import Augmenter, mix, render

from .data import Images, kmeans_anchors
from .loss import region_loss
from .network import Yolov2, declare_layers
from .recipe import Recipe
from .teacher import Imitation, Teacher

__all__ = ["PARTS", "Model", "Trainer", "build_network", "load_model", "save_model"]

PARTS = ("box", "objectness", "class", "imitation", "gradient")  # what a step measures
WARM_UP = 0.03  # share of the schedule
LEAST_RATE = 0.01  # of the peak, at the end of the cosine
CLIP = 10.0  # largest norm of all gradients together
TAUGHT = 0.5  # share of a batch that the teacher looks at: enough for its statistics, at half the time
MEMORY = 0.99  # of the running means that are logged


@dataclass(frozen=True)
class Model:
    """A trained network with what is needed to read its output."""

    network: Yolov2
    anchors: Tensor
    classes: tuple[str, ...]


def build_network(recipe: Recipe, classes: int) -> Yolov2:
    """The recipe's network with its seeded first weights."""
    torch.manual_seed(recipe.seed)
    return Yolov2(declare_layers(recipe.stages, recipe.head, recipe.passthrough, classes), recipe.dropout)


class Trainer:
    """Holds the state of a run and advances it.

    Randomness has no state of its own: step n seeds every generator from (seed, n). So a checkpoint continues the same
    sequence, and needs no generator states.

    Args:
        recipe: The numbers of the run.
        images: Training images, on the device.
        classes: Names.
        teacher: A network to imitate, if any.
        compiled: Compile the step's parts with torch.compile.
        start: A trained model whose weights and anchors a new schedule begins with.
    """

    def __init__(
        self,
        recipe: Recipe,
        images: Images,
        classes: tuple[str, ...],
        *,
        teacher: Teacher | None = None,
        compiled: bool = False,
        start: Model | None = None,
    ) -> None:
        self.recipe, self.classes, self.device = recipe, classes, images.pixels.device
        self.images, self.step, self.rows = len(images), 0, list[dict[str, float]]()
        self.anchors = (kmeans_anchors(images) if start is None else start.anchors).to(self.device)
        self.augmenter = Augmenter(images, recipe.balance)
        self.network = self._place(build_network(recipe, len(classes)))
        if start is not None:
            self.network.load_state_dict(start.network.state_dict())
        self.average = copy.deepcopy(self.network).eval().requires_grad_(False)
        self.teacher = None if teacher is None else self._place(teacher)
        self.imitation = (
            None if teacher is None else self._place(Imitation(self.network.feature_channels, teacher.channels))
        )
        self.optimizer = self._optimizer()
        self.measured = torch.zeros(len(PARTS), device=self.device)
        self._run = _Functions(self, compiled)

    def _place(self, module: Any) -> Any:
        return module.to(self.device, memory_format=torch.channels_last)

    def _optimizer(self) -> torch.optim.Optimizer:
        modules = [m for m in (self.network, self.imitation) if m is not None]
        parameters = [p for m in modules for p in m.parameters()]
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": self.recipe.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.recipe.learning_rate, fused=self.device.type == "cuda")

    @property
    def progress(self) -> float:
        """Share of the schedule that is done."""
        return self.step / self.recipe.steps

    @property
    def epoch(self) -> float:
        """How often every image was drawn, on average, counting a mosaic as one."""
        return self.step * self.recipe.batch / self.images

    @property
    def rate(self) -> float:
        """The learning rate now: warm-up, then a cosine."""
        cosine = LEAST_RATE + (1 - LEAST_RATE) * (1 + math.cos(math.pi * self.progress)) / 2
        return self.recipe.learning_rate * min(1.0, (self.progress + 1e-6) / WARM_UP) * cosine

    def advance(self) -> None:
        """Do one step."""
        recipe, cuda = self.recipe, self.device.type == "cuda"
        torch.manual_seed(recipe.seed * 1_000_003 + self.step + 1)
        size = int(np.random.default_rng((recipe.seed, self.step)).choice(recipe.sizes))
        images, truth, valid = self._draw(size)
        with torch.autocast(self.device.type, torch.bfloat16, cuda):
            out, features = self._run.network(images)
        loss, parts = self._run.loss(out, truth, valid, self.anchors, recipe.smoothing)
        imitation = torch.zeros((), device=self.device)
        if self.teacher is not None:
            with torch.autocast(self.device.type, torch.bfloat16, cuda):
                seen = max(1, int(recipe.batch * TAUGHT))
                with torch.no_grad():
                    wanted = self._run.teacher(images[:seen])
                gate = torch.full((), float(self.progress > WARM_UP), device=self.device)
                imitation = self._run.imitation([f[:seen] for f in features], wanted, gate)
            loss = loss + recipe.imitation * imitation
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._average()
        now = torch.cat([parts, imitation.detach()[None], norm.detach()[None]])
        self.measured = now if self.step == 0 else torch.lerp(now, self.measured, MEMORY)
        self.step += 1

    @torch.no_grad()
    def _draw(self, size: int) -> tuple[Tensor, Tensor, Tensor]:
        recipe, closing = self.recipe, self.progress > self.recipe.close
        mosaic, zoom = (0.0, (0.7, 1.3)) if closing else (recipe.mosaic, (0.4, 1.6))
        plan, truth, valid = self.augmenter.plan(recipe.batch, size, mosaic, zoom)
        images = self._run.render(self.augmenter.pixels, plan, size)
        return mix(images, truth, valid, 0.0 if closing else recipe.mixup)

    @torch.no_grad()
    def _average(self) -> None:
        """Move the averaged weights a little towards the current ones; faster in the beginning."""
        weight = 1 - self.recipe.ema * (1 - math.exp(-(self.step + 1) / 1000))
        target, source = (_floats(m) for m in (self.average, self.network))
        torch._foreach_lerp_(target, source, weight)

    def model(self) -> Model:
        """The averaged network so far."""
        return Model(self.average, self.anchors, self.classes)

    def save(self, path: Path) -> None:
        """Write everything that continues the run."""
        state = {
            "recipe": self.recipe.to_dict(),
            "step": self.step,
            "images": self.images,
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "imitation": None if self.imitation is None else self.imitation.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "measured": self.measured,
            "rows": self.rows,
        }
        with atomic_path(path) as temporary:
            torch.save(state, temporary)

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint.

        Raises:
            UsageError: It was made with another recipe or other images.
        """
        state = torch.load(path, map_location=self.device, weights_only=True)
        theirs, ours = Recipe.from_dict(state["recipe"]).to_dict(), self.recipe.to_dict()
        if differing := [f"--{k.replace('_', '-')} {theirs[k]} (now {ours[k]})" for k in ours if ours[k] != theirs[k]]:
            raise UsageError(f"{path}: made with another recipe: {', '.join(differing)}.\nDo: give the same options")
        if state["images"] != self.images:
            raise UsageError(
                f"{path}: made with {state['images']} images, now {self.images}.\nDo: give the same --data"
            )
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        if self.imitation is not None:
            self.imitation.load_state_dict(state["imitation"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.measured, self.rows = state["step"], state["measured"], state["rows"]


class _Functions:
    """The parts of a step that are worth compiling, compiled or as they are."""

    def __init__(self, trainer: Trainer, compiled: bool) -> None:
        def maybe(function: Callable[..., Any]) -> Callable[..., Any]:
            return torch.compile(function, dynamic=False) if compiled else function

        self.render, self.loss = maybe(render), maybe(region_loss)
        self.network = maybe(trainer.network.forward_with_features)
        if trainer.teacher is not None and trainer.imitation is not None:
            self.teacher, self.imitation = maybe(trainer.teacher.forward), maybe(trainer.imitation.forward)


def _floats(module: nn.Module) -> list[Tensor]:
    return [t for t in module.state_dict().values() if t.dtype.is_floating_point]


def save_model(path: Path, model: Model, recipe: Recipe) -> None:
    """Write a model as float16 tensors, for evaluation and export anywhere."""
    state = {k: v.half().cpu() if v.dtype.is_floating_point else v.cpu() for k, v in model.network.state_dict().items()}
    content = {
        "recipe": recipe.to_dict(),
        "state": state,
        "anchors": model.anchors.cpu(),
        "classes": list(model.classes),
    }
    with atomic_path(path) as temporary:
        torch.save(content, temporary)


def load_model(path: Path) -> tuple[Model, Recipe]:
    """Read what :func:`save_model` wrote."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    if not {"recipe", "state", "anchors", "classes"} <= content.keys():
        raise FormatError(f"{path}: not a model of this sample, but a file with {', '.join(content)}.", path=path)
    recipe = Recipe.from_dict(content["recipe"])
    network = build_network(recipe, len(content["classes"]))
    network.load_state_dict(content["state"])
    return Model(network.eval(), content["anchors"], tuple(content["classes"])), recipe
