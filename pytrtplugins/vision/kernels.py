"""Before and behind the network, on the arrays' own device: letterbox, decoding, suppression as CUDA kernels.

What they write has the dims of the NumPy functions, into arrays that the caller gives: nothing is allocated, nothing waited
for. On NumPy arrays they run through a C++ compiler, for tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..cuda import Constant, CudaKernel
from ..errors import UsageError
from ..tensor import Array
from .letterbox import Letterboxed, placement

__all__ = ["decode_into", "head_priors", "letterbox_into", "nms_into"]

_FOLDER = Path(__file__).parents[1] / "kernels"
_LETTERBOX = CudaKernel.from_file(_FOLDER / "letterbox.cu", "letterbox")
_DECODE = CudaKernel.from_file(_FOLDER / "decode.cu", "decode")
_NMS = CudaKernel.from_file(_FOLDER / "nms.cu", "nms")


def letterbox_into(
    image: Array, output: Array, *, mode: str = "darknet", nhwc: bool = False, step: float = 1.0, stream: Any = None
) -> Letterboxed:
    """Fit a photo into a network's input, with the bits of `letterbox` in mode ``"darknet"``.

    Args:
        image: (H, W, 3) uint8, RGB.
        output: (3, H, W) float32, float16 or int8; written.
        mode: ``"darknet"``, or ``"stretch"`` for the whole input, resized by the same rule.
        nhwc: The output's memory has the channels innermost.
        step: Value of one step, for int8.
        stream: CUDA stream; None: the current one.

    Raises:
        UsageError: the mode is another, or the output has other dims.
    """
    if mode not in ("darknet", "stretch"):
        raise UsageError(f"letterbox_into: mode: expected darknet or stretch, found {mode!r}.", mode=mode)
    if len(output.shape) != 3 or output.shape[0] != 3 or len(image.shape) != 3 or image.shape[2] != 3:
        raise UsageError(
            f"letterbox_into: expected a photo (H, W, 3) and an output (3, H, W), found {image.shape}, {output.shape}."
        )
    (height, width), (out_h, out_w) = image.shape[:2], output.shape[1:]
    (new_w, new_h), corner, offset = placement((width, height), (out_w, out_h), mode)
    steps = _step(width, new_w), _step(height, new_h)
    _LETTERBOX.launch(
        image, output, width, height, out_w, out_h, new_w, new_h, corner, steps, nhwc, step,
        threads=(out_w, out_h), block=(32, 8), stream=stream,
    )  # fmt: skip
    return Letterboxed(output, (new_w / width, new_h / height), offset, (width, height))


def head_priors(anchors: Sequence[float], sides: tuple[int, int], mask: Sequence[int] = ()) -> Constant:
    """Anchors as the decoder takes them: widths and heights in 0..1 of the network's input.

    Args:
        anchors: Width and height of each anchor, one after the other.
        sides: What they are counted in: for region the grid's (width, height), for yolo the input's in pixels.
        mask: Which anchors are used; empty: all.
    """
    pairs = np.asarray(anchors, np.float32).reshape(-1, 2)
    chosen = list(mask) or list(range(len(pairs)))
    return Constant(pairs[chosen] / np.array(sides, np.float32))


def decode_into(
    output: Array,
    boxes: Array,
    scores: Array,
    priors: Constant,
    *,
    background: bool = False,
    new_coords: bool = False,
    score_threshold: float = 0.0,
    nhwc: bool = False,
    stream: Any = None,
) -> None:
    """Boxes and scores of a region or yolo layer, as `decode_region` and `decode_yolo` give them, for a batch.

    Args:
        output: (N, A·(5 + classes), H, W), float32 or float16.
        boxes: (N, B, 4) float32, B = A·H·W; written: centre x, centre y, width, height in 0..1 of the network's input.
        scores: (N, classes, B) float32; written: the classes stand before the boxes here.
        priors: Of `head_priors`.
        background: As for `decode_region`.
        new_coords: As for `decode_yolo`.
        score_threshold: Scores below become 0.
        nhwc: The output's memory has the channels innermost.
        stream: CUDA stream; None: the current one.

    Raises:
        UsageError: the shapes do not fit each other.
    """
    n, c, h, w = output.shape
    anchors = len(priors.array)
    classes = c // anchors - 5
    count = anchors * h * w
    wanted = (n, count, 4), (n, classes, count)
    if c % anchors or (tuple(boxes.shape), tuple(scores.shape)) != wanted:
        raise UsageError(
            f"decode_into: an output {tuple(output.shape)} with {anchors} anchors needs boxes {wanted[0]} and scores "
            f"{wanted[1]}, found {tuple(boxes.shape)} and {tuple(scores.shape)}."
        )
    _DECODE.launch(
        output, priors, boxes, scores, anchors, classes, h, w, nhwc, background, new_coords, score_threshold,
        threads=(h * w, anchors * (1 + classes), n), block=(64, 4), stream=stream,
    )  # fmt: skip


def nms_into(boxes: Array, scores: Array, iou_threshold: float = 0.45, *, stream: Any = None) -> None:
    """Suppress overlapping boxes, class by class, as `nms` does: of equal scores the earlier box wins.

    Args:
        boxes: (N, B, 4) float32: centre x, centre y, width, height.
        scores: (N, classes, B) float32; what is suppressed becomes 0.
        iou_threshold: Overlap above which the box with the lower score is suppressed, 0..1.
        stream: CUDA stream; None: the current one.

    Raises:
        UsageError: the shapes do not fit each other, or the threshold is outside 0..1.
    """
    n, classes, count = scores.shape
    if tuple(boxes.shape) != (n, count, 4):
        raise UsageError(
            f"nms_into: expected boxes {(n, count, 4)} for scores {(n, classes, count)}, found {boxes.shape}."
        )
    if not 0 <= iou_threshold <= 1:
        raise UsageError(f"nms_into: iou_threshold: expected a number from 0 to 1, found {iou_threshold}.")
    _NMS.launch(boxes, scores, classes, count, iou_threshold, threads=(256, classes, n), block=256, stream=stream)


def _step(old: int, new: int) -> float:
    return float(np.float32(old - 1) / np.float32(new - 1)) if new > 1 else 0.0
