"""A network's output layer as a detector sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .decode import decode_region, decode_yolo

__all__ = ["Head"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Head:
    """One region or yolo layer.

    Fields:
        output: Name of the tensor with its values.
        type: ``"region"`` or ``"yolo"``.
        anchors: Width and height of each anchor, in grid cells (region) or input pixels (yolo).
        classes: Number of classes.
        mask: Which anchors a yolo layer uses; empty: all.
        background: A region layer without objectness.
        new_coords: A yolo layer whose widths and heights are squares.
    """

    output: str
    type: str
    anchors: tuple[float, ...]
    classes: int
    mask: tuple[int, ...] = ()
    background: bool = False
    new_coords: bool = False

    def decode(self, values: Floats, size: tuple[int, int]) -> tuple[Floats, Floats]:
        """Boxes (N, B, 4) and scores (N, B, classes) of the layer's values; ``size`` is the input's (width, height)."""
        if self.type == "region":
            return decode_region(values, self.anchors, self.classes, background=self.background)
        return decode_yolo(values, self.anchors, self.classes, mask=self.mask, size=size, new_coords=self.new_coords)

    def unit(self, grid: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
        """What makes an anchor 1 wide and 1 high: the layer's (width, height) in cells, or the input's in pixels."""
        return grid if self.type == "region" else size
