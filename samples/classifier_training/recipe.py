"""Every number that decides how a run of a classifier turns out."""

from __future__ import annotations

from dataclasses import dataclass

from pytrtplugins.utils.numbers import SHARE, FloatRange, IntRange
from training import recipe
from training.recipe import option

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe(recipe.Recipe):
    """The recipe of `training.recipe`, with what a classifier needs: SGD with momentum, on crops of random size."""

    steps: int = option(10_000, IntRange(1, 100_000_000), "optimizer steps of the whole schedule")
    batch: int = option(256, IntRange(1, 65_536), "images a step, of all ranks together")
    size: int = option(224, IntRange(32, 1024), "width and height of the network's input; inception_v3 has 299")
    learning_rate: float = option(
        0.1, FloatRange(1e-9, 100), "peak; warmed up over the first 3 %%, then a cosine to 1 %%"
    )
    momentum: float = option(0.9, SHARE, "of SGD, with Nesterov's look ahead")
    weight_decay: float = option(5e-5, FloatRange(0, 100), "decay of weights (not of biases and norms)")
    ema: float = option(0.999, SHARE, "decay of the averaged weights, which are evaluated and exported")
    smoothing: float = option(0.1, SHARE, "label smoothing of the loss")
    mixup: float = option(0.0, FloatRange(0, 10), "alpha of mixup, which blends images in pairs; 0: none")
    smallest_crop: float = option(0.08, FloatRange(0.01, 1), "smallest share of a photo's area that an image shows")

    @property
    def side(self) -> int:
        """Longer side of a stored photo: the middle of a photo of 4 to 3 then has about the size that is asked for."""
        return -(-self.size * 3 // 2 // 8) * 8
