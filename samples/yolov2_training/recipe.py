"""Every number that decides how a run of YOLOv2 turns out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.numbers import SHARE, FloatRange, IntList, IntRange
from pytrtplugins.utils.override import override
from training import recipe
from training.recipe import option

__all__ = ["NETWORKS", "Recipe"]

NETWORKS: dict[str, dict[str, Any]] = {
    "compact": {},
    "voc": {"stages": (32, 64, 128, 256, 512, 1024), "head": 1024, "passthrough": 64},
}
"""Widths by the network's name: those of the recipe, and those of darknet's yolov2-voc.cfg."""

_FILTERS = IntRange(1, 8192)


@dataclass(frozen=True)
class Recipe(recipe.Recipe):
    """The recipe of `training.recipe`, with what is YOLOv2's; the shipped network's numbers are the defaults."""

    sizes: tuple[int, ...] = option(
        (416,), IntList(IntRange(32, 4096)), "input sizes in pixels, one drawn a step; multiples of 32"
    )
    learning_rate: float = option(
        2e-3, FloatRange(1e-9, 10), "AdamW's peak; warmed up over the first 3 %%, then a cosine to 1 %%"
    )
    weight_decay: float = option(
        0.25, FloatRange(0, 100), "AdamW's decay of convolution weights (not of biases and norms)"
    )
    mosaic: float = option(0.75, SHARE, "share of images glued from four images")
    mixup: float = option(0.4, SHARE, "share of images blended with a second one")
    close: float = option(0.85, SHARE, "share of the schedule after which mosaics and blending stop")
    dropout: float = option(0.1, SHARE, "channels dropped before the head, in training")
    smoothing: float = option(0.05, SHARE, "label smoothing of the class loss")
    balance: float = option(
        0.0, SHARE, "0 draws every image equally often; 1 draws rare classes as often as common ones"
    )
    balance_boxes: float = option(
        0.0, SHARE, "the same for boxes: 1 draws the more photos of a class the fewer boxes it has in all"
    )
    negative: float = option(0.0, FloatRange(0, 0.9), "share of images whose light and dark are exchanged")
    imitation: float = option(
        2.0, FloatRange(0, 1_000_000), "weight of the loss towards a teacher's features, where there is one"
    )
    stages: tuple[int, ...] = option(
        (16, 32, 64, 128, 192, 256), IntList(_FILTERS, 6, 6), "filters of the six trunk stages"
    )
    head: int = option(208, _FILTERS, "filters of the head's 3x3 convolutions")
    passthrough: int = option(32, _FILTERS, "filters of the 1x1 convolution before reorg")
    boxes: int = option(
        0,
        IntRange(0, 10_000),
        "boxes of a photo that are learned, the largest; 0: as many as 99.9 %% of the photos have at most",
    )

    @property
    def size(self) -> int:
        """The largest of ``sizes``: anchors are chosen for it, the network is measured and exported at it."""
        return max(self.sizes)

    @override
    def check(self, ranks: int, accumulate: int) -> None:
        super().check(ranks, accumulate)
        if wrong := [size for size in self.sizes if size % 32]:
            raise UsageError(
                f"--sizes {wrong[0]}: expected multiples of 32.\nDo: give --sizes {wrong[0] // 32 * 32 or 32}"
            )
        if self.passthrough % 4:
            raise UsageError(
                f"--passthrough {self.passthrough}: expected a multiple of 4, since reorg divides the channels by 4.\n"
                f"Do: give --passthrough {-(-self.passthrough // 4) * 4}"
            )
        if min(self.stages[2:]) < 2:
            raise UsageError(
                f"--stages {','.join(map(str, self.stages))}: the third to the sixth have layers of half their filters.\n"
                "Do: give at least 2 for each of these"
            )
        share, smallest = self.batch // (ranks * accumulate), min(self.sizes)
        if share == 1 and smallest == 32:
            raise UsageError(
                f"--sizes {smallest} with one photo a rank at a time: batch norm needs more than one value of a channel.\n"
                f"Do: give --sizes 64, or --batch {2 * ranks * accumulate}"
            )
