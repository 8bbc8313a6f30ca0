"""What the engine trains here: the network with its losses, and how a loader's batch becomes its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.augment import Augmenter, Plan, mix, render
from training.batch import Batch, Pool
from training.schedule import WARM_UP
from training.settings import Settings

from .loss import region_loss
from .model import Model, build_network
from .network import Yolov2
from .recipe import Recipe
from .teacher import Imitation, Teacher

__all__ = ["PARTS", "Detection", "Student"]

PARTS = ("box", "objectness", "class", "imitation")  # what a step measures
TAUGHT = 0.5  # share of a batch that the teacher looks at: enough for its statistics, at half the time
Compiler = Callable[[Any], Any]


class Student(nn.Module):
    """The network and, where there is a teacher, the maps towards its features; their loss.

    Inputs: images (N, 3, H, W) in 0..1; boxes (N, M, 5) as x1, y1, x2, y2 in cells and class; which of them count (N, M); whether
    the teacher shapes the features (N,), 0 or 1.
    Outputs: the loss, and its parts, (4,).
    """

    def __init__(self, network: Yolov2, anchors: Tensor, recipe: Recipe, teacher: Teacher | None) -> None:
        super().__init__()
        self.network = network
        self.imitation = None if teacher is None else Imitation(network.feature_channels, teacher.channels)
        self.register_buffer("anchors", anchors)
        self._recipe, self._teacher = recipe, (teacher,)  # in a tuple: it is no part of what is trained
        self.compile_parts(lambda function: function)

    def compile_parts(self, compiler: Compiler) -> None:
        """Compile the parts of a step that are worth it."""
        (teacher,) = self._teacher
        self._run: Mapping[str, Callable[..., Any]] = {
            "network": compiler(self.network.forward_with_features),
            "loss": compiler(region_loss),
            "teacher": compiler(teacher.forward) if teacher is not None else None,
            "imitation": compiler(self.imitation.forward) if self.imitation is not None else None,
        }

    def forward(self, images: Tensor, truth: Tensor, valid: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a batch."""
        out, features = self._run["network"](images)
        with torch.autocast(images.device.type, enabled=False):
            loss, parts = self._run["loss"](out, truth, valid, self.anchors, self._recipe.smoothing)
        imitation = torch.zeros((), device=images.device)
        if self.imitation is not None:
            seen = max(1, int(len(images) * TAUGHT))
            with torch.no_grad():
                wanted = self._run["teacher"](images[:seen])
            imitation = self._run["imitation"]([f[:seen] for f in features], wanted, gate[0])
            loss = loss + self._recipe.imitation * imitation
        return loss, torch.cat([parts, imitation.detach()[None]])


class Detection:
    """The engine's task: YOLOv2, trained by a recipe.

    Args:
        recipe: The numbers of the run.
        classes: Names.
        anchors: (5, 2) in cells.
        settings: How it computes.
        device: Where.
        teacher: A network to imitate, if any.
        start: A trained model whose weights a new schedule begins with.
    """

    parts = PARTS

    def __init__(
        self,
        recipe: Recipe,
        classes: Sequence[str],
        anchors: Tensor,
        settings: Settings,
        device: torch.device,
        *,
        teacher: Teacher | None = None,
        start: Model | None = None,
    ) -> None:
        self.recipe, self.classes, self._device = recipe, tuple(classes), device
        self.network = build_network(recipe, len(self.classes))
        if start is not None:
            self.network.load_state_dict(start.network.state_dict())
        self._format = settings.memory_format
        module = Student(self.network, anchors, recipe, None if teacher is None else self._place(teacher))
        self.module = self._place(module, weights=settings.variable_update != "parameter_server")
        self._render: Callable[..., Tensor] = render
        if settings.compile:
            torch._dynamo.config.suppress_errors = True  # a part that cannot be compiled runs as it is
            compiler: Compiler = lambda function: torch.compile(function, dynamic=False)  # noqa: E731
            self.module.compile_parts(compiler)
            self._render = compiler(render)
        self._augmenter: Augmenter | None = None
        self._name: Callable[[int], str] = str

    def _place(self, module: Any, *, weights: bool = True) -> Any:
        """On the device, in the layout of the settings; fully_shard takes contiguous weights only."""
        return module.to(self._device, memory_format=self._format if weights else torch.contiguous_format)

    def draw_from(self, pool: Pool | None, name: Callable[[int], str] = str) -> None:
        """Draw from all photos, which are on the device and have names; without a pool from those of each batch."""
        self._augmenter, self._name = None if pool is None else Augmenter(pool, self.recipe.balance), name

    @torch.no_grad()
    def draw(self, batch: Batch, step: int) -> tuple[Tensor, ...]:
        """Augmented images with their boxes, and whether the teacher shapes the features yet."""
        recipe, progress = self.recipe, step / self.recipe.steps
        augmenter = self._augmenter or Augmenter(batch.pool())
        size, (plan, truth, valid) = self._plan(augmenter, len(batch), step)
        images = self._render(augmenter.pixels, plan, size)
        images, truth, valid = mix(images, truth, valid, 0.0 if progress > recipe.close else recipe.mixup)
        gate = torch.full((len(images),), float(progress > WARM_UP), device=self._device)
        return images.contiguous(memory_format=self._format), truth, valid, gate

    def _plan(self, augmenter: Augmenter, batch: int, step: int) -> tuple[int, tuple[Plan, Tensor, Tensor]]:
        """The size of a step's images, and how they are drawn."""
        recipe = self.recipe
        size = int(np.random.default_rng((recipe.seed, step)).choice(recipe.sizes))
        mosaic, zoom = (0.0, (0.7, 1.3)) if step / recipe.steps > recipe.close else (recipe.mosaic, (0.4, 1.6))
        own = None if self._augmenter else torch.arange(batch, device=self._device)
        return size, augmenter.plan(batch, size, mosaic, zoom, own=own)

    def drawn(self, keys: Sequence[str], step: int) -> Sequence[str]:
        """Names of the photos that a step drew: of the pool by the same random numbers; else those of its batch."""
        if self._augmenter is None:
            return keys
        _, (plan, _, _) = self._plan(self._augmenter, len(keys), step)
        return [self._name(number) for number in plan.source.unique().tolist() if number >= 0]

    def groups(self) -> list[dict[str, Any]]:
        """Weights of convolutions decay; biases and norms do not."""
        parameters = list(self.module.parameters())
        return [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": self.recipe.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]

    def model(self, state: Mapping[str, Tensor]) -> Model:
        """A model of its own with these weights, such as the averaged ones."""
        network = build_network(self.recipe, len(self.classes)).to(self._device)
        network.load_state_dict(state)
        return Model(network.eval().requires_grad_(False), self.module.anchors, self.classes)
