"""What the engine trains here: the network with its losses, and how a loader's batch becomes its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from training.augment import MAX_BOXES, Augmenter, draw_random_numbers
from training.batch import Batch, Pool, as_pool
from training.loop import decay_groups
from training.ranks import Ranks
from training.schedule import WARM_UP
from training.settings import Settings

from .fused import fuse
from .loss import region_loss
from .model import Model, build_network
from .network import Yolov2
from .recipe import Recipe
from .teacher import Imitation, Teacher

__all__ = ["PARTS", "Detection", "Shape", "Student"]

PARTS = ("box", "objectness", "class", "imitation")  # what a step measures
TAUGHT = 0.5  # share of a batch that the teacher looks at: enough for its statistics, at half the time
Compiler = Callable[[Any], Any]


class Shape(NamedTuple):
    """What the shapes of a step's tensors follow from: how many images, and their width and height in pixels."""

    images: int
    size: int


class Student(nn.Module):
    """The network and, where there is a teacher, the maps towards its features; their loss.

    Inputs: images (N, 3, H, W) in 0..1; boxes (N, M, 5) as x1, y1, x2, y2 in cells and class; which of them count (N, M); whether
    the teacher shapes the features (N,), 0 or 1.
    Outputs: the loss, and its parts, (4,).
    """

    def __init__(
        self, network: Yolov2, anchors: Tensor, recipe: Recipe, teacher: Teacher | None, ranks: Ranks | None = None
    ) -> None:
        super().__init__()
        self.network = network
        self.imitation = None if teacher is None else Imitation(network.feature_channels, teacher.channels)
        self.register_buffer("anchors", anchors)
        self._per_rank = (torch.compiler.disable(ranks.per_rank),) if ranks is not None and ranks.joined else ()
        self._recipe, self._teacher = recipe, (teacher,)  # in a tuple: it is no part of what is trained
        self.compile_parts(lambda function: function)

    def compile_parts(self, compiler: Compiler) -> None:
        """Compile the parts of a step that are worth it."""
        (teacher,) = self._teacher
        self._run: Mapping[str, Callable[..., Any]] = {
            "begin": compiler(self.network.begin),
            "finish": compiler(self.network.finish),
            "loss": compiler(region_loss),
            "teacher": compiler(teacher.forward) if teacher is not None else None,
            "imitation": compiler(self.imitation.forward) if self.imitation is not None else None,
        }

    def forward(self, images: Tensor, truth: Tensor, valid: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a batch."""
        out, features = self._run["finish"](self._run["begin"](images))
        with torch.autocast(images.device.type, enabled=False):
            loss, parts = self._run["loss"](out, truth, valid, self.anchors, self._recipe.smoothing, *self._per_rank)
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
        ranks: Those that share a batch, if any do: its loss is normalized by the boxes of all of them.
        boxes: Of a training image that are learned.
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
        ranks: Ranks | None = None,
        boxes: int = MAX_BOXES,
    ) -> None:
        self.recipe, self.classes, self._device, self._boxes = recipe, tuple(classes), device, boxes
        self.network = build_network(recipe, len(self.classes))
        if start is not None:
            self.network.load_state_dict(start.network.state_dict())
        self._format = settings.memory_format
        if device.type == "cuda" and settings.fuses:
            fuse(self.network, device)
        module = Student(self.network, anchors, recipe, None if teacher is None else self._place(teacher), ranks)
        self.module = self._place(module, weights=settings.variable_update != "parameter_server")
        self._dtype = settings.dtype or torch.float32
        self._compiler: Compiler = lambda function: function
        if settings.compile:
            torch._dynamo.config.suppress_errors = True  # a part that cannot be compiled runs as it is
            torch._dynamo.config.cache_size_limit = max(8, 2 * len(recipe.sizes))  # each part is compiled once a size
            self._compiler = lambda function: torch.compile(function, dynamic=False)
            self.module.compile_parts(self._compiler)
        self._amounts = lru_cache(maxsize=4)(self._upload)
        self.draw_from(None)

    def _place(self, module: Any, *, weights: bool = True) -> Any:
        """On the device, in the layout of the settings; fully_shard takes contiguous weights only."""
        return module.to(self._device, memory_format=self._format if weights else torch.contiguous_format)

    def _upload(self, amounts: tuple[float, ...]) -> Tensor:
        return torch.tensor(amounts, device=self._device)

    def draw_from(self, pool: Pool | None, name: Callable[[int], str] = str) -> None:
        """Draw from all photos, which are on the device and have names; without a pool from those of each batch."""
        recipe = self.recipe
        self._augmenter = Augmenter(
            self._device,
            pool,
            recipe.balance,
            self._dtype,
            boxes=recipe.balance_boxes,
            negative=recipe.negative,
            most=self._boxes,
        )
        self._name = name
        self._augment = self._compiler(self._augmenter.draw)

    def inputs(self, batch: Batch | Sized, step: int) -> tuple[Shape, tuple[Tensor, ...]]:
        """The number and size of a step's images; how strongly they are changed, and the photos of its batch where there is no pool."""
        recipe, progress = self.recipe, step / self.recipe.steps
        closing = progress > recipe.close
        mosaic, zoom, mixup = (0.0, (0.7, 1.3), 0.0) if closing else (recipe.mosaic, (0.4, 1.6), recipe.mixup)
        size = int(np.random.default_rng((recipe.seed, step)).choice(recipe.sizes))
        amounts = self._amounts((mosaic, *zoom, mixup, float(progress > WARM_UP)))
        photos = () if self._augmenter.pool is not None else (batch.pixels, batch.size, batch.boxes, batch.valid)
        return Shape(len(batch), size), (amounts, *photos)

    @torch.no_grad()
    def draw(self, shape: Shape, amounts: Tensor, *photos: Tensor) -> tuple[Tensor, ...]:
        """Augmented images with their boxes, and whether the teacher shapes the features yet."""
        lots = draw_random_numbers(shape.images, self._device)
        images, truth, valid = self._augment(lots, amounts, shape.size, as_pool(*photos) if photos else None)
        return images.contiguous(memory_format=self._format), truth, valid, amounts[4].expand(shape.images)

    def drawn(self, keys: Sequence[str], step: int) -> Sequence[str]:
        """Names of the photos that a step drew: of the pool by the same random numbers; else those of its batch."""
        if self._augmenter.pool is None:
            return keys
        shape, (amounts,) = self.inputs(keys, step)
        plan, _, _ = self._augmenter.plan(draw_random_numbers(shape.images, self._device), amounts, shape.size)
        return [self._name(number) for number in plan.source.unique().tolist() if number >= 0]

    def groups(self) -> list[dict[str, Any]]:
        """Weights of convolutions decay; biases and norms do not."""
        return decay_groups(self.module, self.recipe.weight_decay)

    def model(self, state: Mapping[str, Tensor]) -> Model:
        """A model of its own with these weights, such as the averaged ones."""
        network = build_network(self.recipe, len(self.classes)).to(self._device)
        network.load_state_dict(state)
        return Model(network.eval().requires_grad_(False), self.module.anchors, self.classes)
