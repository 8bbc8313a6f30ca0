"""Decode the outputs of region and yolo layers to boxes and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UsageError

__all__ = ["Head", "decode_region", "decode_yolo"]

Floats = npt.NDArray[np.float32]


def decode_region(
    output: Floats, anchors: Sequence[float], classes: int, *, background: bool = False
) -> tuple[Floats, Floats]:
    """Decode a region layer (YOLOv2) to boxes and scores.

    Args:
        output: (N, A·(5 + classes), H, W): the layer's output, that is with logistic and softmax applied.
        anchors: Width and height of each of the A anchors, one after the other, in grid cells.
        classes: Number of classes.
        background: The layer has no objectness: the class probability alone is the score.

    Returns:
        ``boxes_cxcywh`` (N, B, 4): centre x, centre y, width, height in 0..1 of the network's input, and ``scores``
        (N, B, classes): objectness times class probability. B = A·H·W, in the order ``[anchor][row][column]``.

    Raises:
        UsageError: the shapes do not fit each other.

    Source:
        pjreddie/darknet f6afaabc, src/region_layer.c get_region_box and get_region_detections.
    """
    values, priors = _split(output, anchors, classes)
    height, width = values.shape[3:5]
    sides: Floats = np.array([width, height], np.float32)
    return _boxes(values, priors / sides), _scores(values, background)


def decode_yolo(
    output: Floats,
    anchors: Sequence[float],
    classes: int,
    *,
    mask: Sequence[int] = (),
    size: tuple[int, int],
    new_coords: bool = False,
) -> tuple[Floats, Floats]:
    """Decode a yolo layer (YOLOv3 and later) to boxes and scores.

    Args:
        output: (N, A·(5 + classes), H, W): the layer's output, with the logistic and scale_x_y applied.
        anchors: Width and height of each anchor, one after the other, in pixels of the network's input.
        classes: Number of classes.
        mask: Which anchors this layer uses; empty: all, in order.
        size: (width, height) of the network's input in pixels.
        new_coords: Widths and heights are 4·v² times the anchor's instead of exp(v) times.

    Returns:
        As :func:`decode_region`.

    Raises:
        UsageError: the shapes do not fit each other, or the mask names an anchor that is not there.

    Source:
        pjreddie/darknet f6afaabc, src/yolo_layer.c get_yolo_box and get_yolo_detections; new_coords: AlexeyAB/darknet
        59596d78, get_yolo_box.
    """
    pairs = _anchor_pairs(anchors)
    chosen = list(mask) or list(range(len(pairs)))
    if min(chosen) < 0 or max(chosen) >= len(pairs):
        raise UsageError(f"yolo head: mask {tuple(mask)} names an anchor that is not there; there are {len(pairs)}.")
    values, priors = _split(output, pairs[chosen].ravel(), classes)
    sides: Floats = np.array(size, np.float32)
    return _boxes(values, priors / sides, squared=new_coords), _scores(values, background=False)


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
        distance_power: As for `nms`, which suppresses the boxes of all layers as the last one says.
    """

    output: str
    type: str
    anchors: tuple[float, ...]
    classes: int
    mask: tuple[int, ...] = ()
    background: bool = False
    new_coords: bool = False
    distance_power: float | None = None

    def decode(self, values: Floats, size: tuple[int, int]) -> tuple[Floats, Floats]:
        """Decode the layer's values to boxes (N, B, 4) and scores (N, B, classes); ``size``: the input's (width, height)."""
        if self.type == "region":
            return decode_region(values, self.anchors, self.classes, background=self.background)
        return decode_yolo(values, self.anchors, self.classes, mask=self.mask, size=size, new_coords=self.new_coords)

    def unit(self, grid: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
        """Return the unit of the anchors: (width, height) of the layer in cells, or of the input in pixels."""
        return grid if self.type == "region" else size


def _anchor_pairs(anchors: Sequence[float] | Floats) -> Floats:
    flat: Floats = np.asarray(anchors, np.float32).ravel()
    if flat.size == 0 or flat.size % 2:
        raise UsageError(f"head: anchors: expected pairs of width and height, found {flat.size} numbers.")
    return flat.reshape(-1, 2)


def _split(output: Floats, anchors: Sequence[float] | Floats, classes: int) -> tuple[Floats, Floats]:
    """Reshape values to (N, A, 5 + classes, H, W) and anchors to (A, 2)."""
    priors = _anchor_pairs(anchors)
    values = np.asarray(output, np.float32)
    if values.ndim != 4 or values.shape[1] != len(priors) * (5 + classes):
        raise UsageError(
            f"head: expected output (N, {len(priors) * (5 + classes)}, H, W) for {len(priors)} anchors and {classes} classes, "
            f"found {values.shape}."
        )
    n, _, h, w = values.shape
    return values.reshape(n, len(priors), 5 + classes, h, w), priors


def _boxes(values: Floats, priors: Floats, *, squared: bool = False) -> Floats:
    """Return boxes (N, B, 4); priors (A, 2) are widths and heights in 0..1."""
    n, _, _, height, width = values.shape
    columns, rows = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)[:, None]
    sides = values[:, :, 2:4]
    with np.errstate(over="ignore"):  # a network without training may give any width
        factors = sides**2 * 4 if squared else np.exp(sides.astype(np.float64)).astype(np.float32)
        boxes = np.stack(
            [
                (columns + values[:, :, 0]) / np.float32(width),
                (rows + values[:, :, 1]) / np.float32(height),
                *np.moveaxis(factors * priors[:, :, None, None], 2, 0),
            ],
            axis=-1,
        )
    return boxes.reshape(n, -1, 4)


def _scores(values: Floats, background: bool) -> Floats:
    """Return scores (N, B, classes)."""
    probability = values[:, :, 5:] if background else values[:, :, 4:5] * values[:, :, 5:]
    n, classes = values.shape[0], probability.shape[2]
    result: Floats = np.moveaxis(probability, 2, -1).reshape(n, -1, classes)
    return result
