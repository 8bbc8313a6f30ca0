"""Launch the CUDA kernels of preprocessing and postprocessing: letterbox, decoding, suppression, top-k boxes.

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
from .letterbox import Placement, place_image

__all__ = [
    "decode_into",
    "head_priors",
    "letterbox_batch_into",
    "letterbox_into",
    "nms_into",
    "resize_rule",
    "top_k_into",
]

_FOLDER = Path(__file__).parents[1] / "kernels"
_LETTERBOX = CudaKernel.from_file(_FOLDER / "letterbox.cu", "letterbox")
_DECODE = CudaKernel.from_file(_FOLDER / "decode.cu", "decode")
_NMS = CudaKernel.from_file(_FOLDER / "nms.cu", "nms")
_TOP_K = CudaKernel.from_file(_FOLDER / "top_k.cu", "top_k")
_RANKING = 32 * 256


def letterbox_into(
    image: Array, output: Array, *, mode: str = "letterbox", nhwc: bool = False, step: float = 1.0, stream: Any = None
) -> Placement:
    """Fit an image into a network's input, with the bits of `letterbox`.

    Args:
        image: (H, W, 3) uint8, RGB.
        output: (3, H, W) float32, float16 or int8; written.
        mode: One of `MODES`.
        nhwc: The output's memory has the channels innermost.
        step: Value of one step, for int8.
        stream: CUDA stream; None: the current one.

    Raises:
        UsageError: the mode is unknown, or the output has other dims.
    """
    if len(output.shape) != 3 or output.shape[0] != 3 or len(image.shape) != 3 or image.shape[2] != 3:
        raise UsageError(
            f"letterbox_into: expected an image (H, W, 3) and an output (3, H, W), found {image.shape}, {output.shape}."
        )
    (height, width), (out_h, out_w) = image.shape[:2], output.shape[1:]
    placement = place_image((width, height), (out_w, out_h), mode)
    _LETTERBOX.launch(
        image, output, None, width, height, placement.inner, placement.corner, resize_rule(mode), out_w, out_h, nhwc, step,
        threads=(out_w, out_h), block=(32, 8), stream=stream,
    )  # fmt: skip
    return placement


def resize_rule(mode: str) -> int:
    """Return the number of a mode's resize rule in letterbox.cu."""
    return 0 if mode == "darknet" else 1


def letterbox_batch_into(images: Array, placements: Array, output: Array, *, stream: Any = None) -> None:
    """Fit images of any sizes into a batch, where their numbers lie in memory, so that a captured graph serves all sizes.

    Args:
        images: uint8, one dimension: the images' bytes.
        placements: (N, 8) int32: begin in ``images`` in units of 16 bytes, width, height, width and height in the input, left,
            top, `resize_rule`.
        output: (N, 3, H, W) float32, float16; written.
        stream: CUDA stream; None: the current one.
    """
    n, _, out_h, out_w = output.shape
    _LETTERBOX.launch(
        images, output, placements, 0, 0, 0, 0, 0, 0, 0, out_w, out_h, False, 1.0,
        threads=(out_w, out_h, n), block=(32, 8), stream=stream,
    )  # fmt: skip


def head_priors(anchors: Sequence[float], sides: tuple[int, int], mask: Sequence[int] = ()) -> Constant:
    """Return anchors in the decoder's form: widths and heights in 0..1 of the network's input.

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
    score_threshold: float | Array = 0.0,
    first: int = 0,
    nhwc: bool = False,
    stream: Any = None,
) -> None:
    """Decode a batch of a region or yolo layer to boxes and scores, equal to `decode_region` and `decode_yolo`.

    Args:
        output: (N, A·(5 + classes), H, W), float32 or float16.
        boxes: (N, B, 4) float32; written: centre x, centre y, width, height in 0..1 of the network's input.
        scores: (N, classes, B) float32; written: the classes stand before the boxes here.
        priors: Of `head_priors`.
        background: As for `decode_region`.
        new_coords: As for `decode_yolo`.
        score_threshold: Scores that are not above become 0. An array of one float32: read when the kernel runs.
        first: Number of the layer's first box among B, where several layers share the arrays; it has A·H·W boxes.
        nhwc: The output's memory has the channels innermost.
        stream: CUDA stream; None: the current one.

    Raises:
        UsageError: the shapes do not fit each other.
    """
    n, c, h, w = output.shape
    anchors, total = len(priors.array), boxes.shape[1]
    classes = c // anchors - 5
    expected_shapes = (n, total, 4), (n, classes, total)
    if (
        c % anchors
        or (tuple(boxes.shape), tuple(scores.shape)) != expected_shapes
        or not 0 <= first <= total - anchors * h * w
    ):
        raise UsageError(
            f"decode_into: an output {tuple(output.shape)} with {anchors} anchors needs boxes (N, B, 4) and scores (N, "
            f"{classes}, B) with B at least {first + anchors * h * w}, found {tuple(boxes.shape)} and {tuple(scores.shape)}."
        )
    _DECODE.launch(
        output, priors, boxes, scores,
        *_threshold_arguments(score_threshold, first, total, anchors, classes, h, w, nhwc, background, new_coords),
        threads=(h * w, anchors * (1 + classes), n), block=(64, 4), stream=stream,
    )  # fmt: skip


def nms_into(
    boxes: Array,
    scores: Array,
    iou_threshold: float | Array = 0.45,
    *,
    distance_power: float | None = None,
    found: Array | None = None,
    counts: Array | None = None,
    stream: Any = None,
) -> None:
    """Suppress overlapping boxes, class by class, as `nms` does.

    Args:
        boxes: (N, B, 4) float32: centre x, centre y, width, height.
        scores: (N, classes, B) float32; what is suppressed becomes negative.
        iou_threshold: Overlap above which the box with the lower score is suppressed, 0..1. An array of one float32: read
            when the kernel runs.
        distance_power: As for `nms`.
        found: (N, classes·B) uint64; written: what stays, for `top_k_into`.
        counts: (N,) int32, all 0; written: how many stay.
        stream: CUDA stream; None: the current one.

    Raises:
        UsageError: the shapes do not fit each other, or the threshold is outside 0..1.
    """
    n, classes, count = scores.shape
    if tuple(boxes.shape) != (n, count, 4):
        raise UsageError(
            f"nms_into: expected boxes {(n, count, 4)} for scores {(n, classes, count)}, found {boxes.shape}."
        )
    if isinstance(iou_threshold, (int, float, np.floating)) and not 0 <= iou_threshold <= 1:
        raise UsageError(f"nms_into: iou_threshold: expected a number from 0 to 1, found {iou_threshold}.")
    _NMS.launch(
        boxes, scores, found, counts, *_threshold_arguments(iou_threshold, classes, count),
        -1.0 if distance_power is None else distance_power,
        threads=(256, classes, n), block=256, stream=stream,
    )  # fmt: skip


def top_k_into(
    found: Array, counts: Array, boxes: Array, rows: Array, totals: Array, classes: int, *, stream: Any = None
) -> None:
    """Write the top-k boxes of each image by score, best first; of equal scores the earlier box, then the lower class.

    Args:
        found: Of `nms_into`.
        counts: Of `nms_into`.
        boxes: (N, B, 4) float32.
        rows: (N, M, 6) float32; written: class, score, centre x, centre y, width, height of the best M boxes.
        totals: (N,) int32; written: how many rows there are.
        classes: Number of classes.
        stream: CUDA stream; None: the current one.
    """
    n, max_detections, _ = rows.shape
    _TOP_K.launch(
        found, counts, boxes, rows, totals, found.shape[1], classes, boxes.shape[1], max_detections,
        threads=(min(found.shape[1], _RANKING), n), stream=stream,
    )  # fmt: skip


def _threshold_arguments(threshold: float | Array, *numbers: Any) -> tuple[Any, ...]:
    """Return a kernel's last arguments: the threshold's array or None, ``numbers``, the threshold as a number or 0."""
    return (
        (None, *numbers, threshold) if isinstance(threshold, (int, float, np.floating)) else (threshold, *numbers, 0.0)
    )
