"""What the engine trains here: a classifier with its loss, and how a loader's batch becomes its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Beta
from torch.nn import functional

from training.batch import Batch, Pool
from training.loop import decay_groups
from training.settings import Settings

from .model import Classifier, Model, build_network
from .recipe import Recipe

__all__ = ["Classification", "Shape", "crop", "middle"]

_AUXILIARY = 0.4  # weight of an auxiliary classifier's loss: Szegedy et al., 2015
_STRETCH = math.log(4 / 3)  # of a crop's sides
_MIDDLE = 0.875  # of the shorter side, which is shown where a network is measured


class Shape(NamedTuple):
    """What the shapes of a step's tensors follow from: how many images, and their width and height in pixels."""

    images: int
    size: int


class Student(nn.Module):
    """The network and its loss.

    Inputs: images (N, 3, H, W) in 0..1; their classes (N,); the classes of what is blended with them (N,); the image's own share (N,).
    Outputs: the loss; the loss, and the share of the images whose class has the largest logit, (2,).
    """

    def __init__(self, network: Classifier, smoothing: float) -> None:
        super().__init__()
        self.network, self._smoothing = network, smoothing
        self.run: Callable[[Tensor], Any] = network.forward

    def forward(self, images: Tensor, kinds: Tensor, others: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a batch."""
        out = self.run(images)
        logits, *more = [out] if isinstance(out, Tensor) else out
        with torch.autocast(images.device.type, enabled=False):
            loss = self._loss(logits, kinds, others, share)
            for auxiliary in more:
                loss = loss + _AUXILIARY * self._loss(auxiliary, kinds, others, share)
            right = (logits.argmax(1) == kinds).float().mean()
        return loss, torch.stack([loss.detach(), right])

    def _loss(self, logits: Tensor, kinds: Tensor, others: Tensor, share: Tensor) -> Tensor:
        own, other = (
            functional.cross_entropy(logits.float(), each, reduction="none", label_smoothing=self._smoothing)
            for each in (kinds, others)
        )
        return (share * own + (1 - share) * other).mean()


class Classification:
    """The engine's task: a classifier, trained by a recipe.

    Args:
        name: Of the network; see `build_network`.
        recipe: The numbers of the run.
        classes: Names.
        settings: How it computes.
        device: Where.
        start: A trained model whose weights a new schedule begins with.
    """

    parts = ("loss", "correct")

    def __init__(
        self,
        name: str,
        recipe: Recipe,
        classes: Sequence[str],
        settings: Settings,
        device: torch.device,
        start: Model | None = None,
    ) -> None:
        self.name, self.recipe, self.classes, self._device = name, recipe, tuple(classes), device
        self.network = build_network(name, len(self.classes), recipe.seed)
        if start is not None:
            self.network.load_state_dict(start.network.state_dict())
        self._format = settings.memory_format
        weights = torch.contiguous_format if settings.variable_update == "parameter_server" else self._format
        self.module = Student(self.network, recipe.smoothing).to(device, memory_format=weights)
        self._columns = torch.tensor([True, False], device=device)
        self._draw = self._images
        if settings.compile:
            self.module.run = torch.compile(self.network.forward, dynamic=False)
            self._draw = torch.compile(self._images, dynamic=False)

    def draw_from(self, pool: Pool | None, name: Callable[[int], str]) -> None:
        """Nothing: each image is one of its batch."""

    def inputs(self, batch: Batch, step: int) -> tuple[Shape, tuple[Tensor, ...]]:
        """The number and size of a step's images; the photos, their sizes and their classes."""
        kinds = batch.boxes[:, 0, 0].long()
        return Shape(len(batch), self.recipe.size), (batch.pixels, batch.size, kinds)

    @torch.no_grad()
    def draw(self, shape: Shape, pixels: Tensor, sizes: Tensor, kinds: Tensor) -> tuple[Tensor, ...]:
        """Images of random crops, half of them mirrored, and blended where the recipe says so; and their classes."""
        images = self._draw(pixels, sizes, torch.rand(shape.images, 5, device=self._device), shape.size)
        share = torch.ones(shape.images, device=self._device)
        others = kinds
        if self.recipe.mixup:
            alpha = torch.full((shape.images,), self.recipe.mixup, device=self._device)
            share = Beta(alpha, alpha, validate_args=False).sample()  # which would wait for the device
            images = torch.lerp(images.roll(1, 0), images, share.view(-1, 1, 1, 1))
            others = kinds.roll(1, 0)
        return images.contiguous(memory_format=self._format), kinds, others, share

    def _images(self, pixels: Tensor, sizes: Tensor, lots: Tensor, size: int) -> Tensor:
        smallest = self.recipe.smallest_crop
        area = (smallest + (1 - smallest) * lots[:, 0]) * sizes.prod(1)
        stretch = torch.exp((2 * lots[:, 1] - 1) * _STRETCH / 2)
        extent = torch.stack([area.sqrt() * stretch, area.sqrt() / stretch], 1)
        extent = torch.minimum(extent, sizes)
        low = lots[:, 2:4] * (sizes - extent)
        mirrored = lots[:, 4] < 0.5
        begin = torch.where(mirrored[:, None] & self._columns, low + extent, low)
        return crop(pixels, sizes, begin, torch.where(begin > low, -extent, extent), size)

    def drawn(self, keys: Sequence[str], step: int) -> Sequence[str]:
        """Names of the photos that a step drew: those of its batch."""
        return keys

    def groups(self) -> list[dict[str, Any]]:
        """Weights decay; biases and norms do not."""
        return decay_groups(self.module, self.recipe.weight_decay)

    def model(self, state: Mapping[str, Tensor]) -> Model:
        """A model of its own with these weights, such as the averaged ones."""
        network = build_network(self.name, len(self.classes)).to(self._device)
        network.load_state_dict(state)
        return Model(network.eval().requires_grad_(False), self.name, self.classes, self.recipe.size)


def middle(pixels: Tensor, sizes: Tensor, size: int) -> Tensor:
    """The middle of photos: a square of 0.875 of the shorter side, as (N, 3, size, size) in 0..1."""
    extent = _MIDDLE * sizes.amin(1, keepdim=True).expand(-1, 2)
    return crop(pixels, sizes, (sizes - extent) / 2, extent, size)


def crop(pixels: Tensor, sizes: Tensor, begin: Tensor, extent: Tensor, size: int) -> Tensor:
    """Draw a rectangle of each photo with bilinear interpolation.

    Args:
        pixels: (N, 3, side, side) uint8, each photo in the upper left corner.
        sizes: (N, 2) width and height of the photos.
        begin: (N, 2) x and y of the rectangle's corner in pixels.
        extent: (N, 2) its width and height; negative ones go to the left, or up: a mirrored image.
        size: Width and height of the images.

    Returns:
        (N, 3, size, size) float32 in 0..1.
    """
    steps = (torch.arange(size, device=pixels.device) + 0.5) / size
    places = begin[:, None] + steps[None, :, None] * extent[:, None]  # (N, size, 2)
    places = torch.minimum(places.clamp(min=0.5), sizes[:, None] - 0.5) * 2 / pixels.shape[3] - 1
    columns, rows = places.unbind(2)
    grid = torch.stack(torch.broadcast_tensors(columns[:, None], rows[:, :, None]), 3)
    return functional.grid_sample(pixels.float() / 255, grid, align_corners=False)
