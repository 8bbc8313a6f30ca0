"""Runs a network over images, and changes its weights so that int8 loses less: equalized channel ranges, or rounding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..calibration import ChannelMaximaCalibrator, MinMaxCalibrator
from ..model.ir import array_of, rewrite
from ..passes import AdaptiveRounding, CrossLayerEqualization, prepare, run_passes
from ..passes._int8_demand import input_of
from ..passes._quantize_plan import make_plan
from ..utils.optional import ir, onnx
from .calibrate import calibrate_prepared
from .host.int8 import safe_weight_levels

__all__ = ["equalize", "round_weights"]

_POSITIONS = 512  # of an image that a layer's Gram matrix takes
_LARGEST = 4608  # inputs of one result: 512 channels under 3 × 3; the time grows with the third power


def equalize(
    model: str | Path | onnx.ModelProto,
    batches: Iterable[Any],
    *,
    engine: str = "auto",
    threads: int | None = None,
    progress: bool = True,
) -> onnx.ModelProto:
    """Give a network that computes the same in float, and loses less in INT8.

    Channels between two convolutions get similar ranges; see `pytrtplugins.passes.CrossLayerEqualization`. Networks with
    depthwise convolutions gain most, with percentile calibration; docs/lab/accuracy.md has figures. The result is an ordinary
    model for every engine: it is calibrated and built as any other, and has calibration caches of its own.

    Args:
        model: Path or model without Q/DQ; it is not changed.
        batches: Batches such as `ImageBatches`; 20 images are enough.
        engine: Engine that runs the network in float32.
        threads: Threads of one run.
        progress: Show a progress bar if the output is a terminal.

    Returns:
        The prepared model with other weights.

    Raises:
        NoDataError: there are no batches.
        UsageError: a batch does not have the network's inputs.
        CalibrationError: a tensor has values that are not finite.

    Example:
        >>> images = ImageBatches("images/", mode="letterbox")                                         # doctest: +SKIP
        >>> model = equalize("net.onnx", images)                                                       # doctest: +SKIP
        >>> engine = build(model, precision="int8", calibration=PercentileCalibrator(images))          # doctest: +SKIP
    """
    prepared = prepare(model)
    calibrator = ChannelMaximaCalibrator(batches)
    calibrate_prepared(prepared, calibrator, engine=engine, threads=threads, progress=progress)
    return run_passes(prepared, CrossLayerEqualization(calibrator.channels))


def round_weights(
    model: str | Path | onnx.ModelProto,
    batches: Iterable[Any],
    *,
    levels: int | None = None,
    engine: str = "auto",
    threads: int | None = None,
    progress: bool = True,
) -> onnx.ModelProto:
    """Give a network whose convolutions have weights that int8 holds exactly, rounded together over images.

    See `pytrtplugins.passes.AdaptiveRounding`. It pays on CPUs without VNNI, whose int8 weights have 7 bits; equalize before,
    calibrate afterwards. Left alone: layers that stay in float, and those with more than 4,608 inputs to one result.

    Args:
        model: As for `equalize`.
        batches: Batches such as `ImageBatches`; 8 images are enough.
        levels: Largest int8 weight, 2..127; None: that of INT8 on this CPU.
        engine: As for `equalize`.
        threads: As for `equalize`.
        progress: As for `equalize`.

    Returns:
        The prepared model with other weights.

    Raises:
        Exception: as for `equalize`.

    Example:
        >>> model = round_weights("net.onnx", ImageBatches("images/", limit=8))  # doctest: +SKIP
    """
    prepared = prepare(model)

    def round_in(model: ir.Model) -> None:
        calibrator = _GramCalibrator(batches, [node for node in make_plan(model, None).layers if _fits(node)])
        calibrate_prepared(prepared, calibrator, engine=engine, threads=threads, progress=progress)
        AdaptiveRounding(calibrator.grams, safe_weight_levels() if levels is None else levels)(model)

    return rewrite(prepared, round_in)


def _fits(node: ir.Node) -> bool:
    """Whether it is a 2-D convolution of one group, or depthwise, with weights of its own."""
    if node.op_type != "Conv" or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return False
    weights = array_of(input_of(node, 1))
    if weights is None or weights.ndim != 4 or len(input_of(node, 1).uses()) != 1:
        return False
    filters, *inputs = weights.shape
    groups = node.attributes.get_int("group", 1)
    return bool(np.prod(inputs) <= _LARGEST) and (groups == 1 or (groups == filters and inputs[0] == 1))


class _GramCalibrator(MinMaxCalibrator):
    """Sums the Gram matrices of what convolutions read."""

    def __init__(self, batches: Iterable[Any], nodes: Sequence[ir.Node]) -> None:
        self._nodes: dict[str, list[ir.Node]] = {}
        for node in nodes:
            self._nodes.setdefault(str(input_of(node, 0).name), []).append(node)
        super().__init__(batches)

    def reset(self) -> None:
        super().reset()
        self.grams: dict[str, npt.NDArray[np.float32]] = {}

    def _observe(self, name: str, array: npt.NDArray[np.float32]) -> None:
        super()._observe(name, array)  # refuses what is not finite
        for node in self._nodes.get(name, ()):
            for image in array:
                gram, result = _gram(image, node), str(node.outputs[0].name)
                if result in self.grams:
                    gram += self.grams[result]
                self.grams[result] = gram


def _gram(image: npt.NDArray[np.float32], node: ir.Node) -> npt.NDArray[np.float32]:
    """(G, K, K) of one (C, H, W) image, from at most `_POSITIONS` places, evenly spread."""
    kernel = array_of(input_of(node, 1)).shape[2:]  # `_fits` saw to it
    top, left, bottom, right = node.attributes.get_ints("pads", (0, 0, 0, 0))
    strides, dilations = (node.attributes.get_ints(key, (1, 1)) for key in ("strides", "dilations"))
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    padded = np.pad(image, ((0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(1, 2))
    windows = windows[:, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    rows, columns = np.divmod(np.arange(windows.shape[1] * windows.shape[2]), windows.shape[2])
    step = -(-len(rows) // _POSITIONS)
    seen = windows[:, rows[::step], columns[::step]]  # (C, positions, R, S)
    if node.attributes.get_int("group", 1) == 1:
        flat = seen.transpose(1, 0, 2, 3).reshape(1, seen.shape[1], -1)
    else:
        flat = seen.reshape(*seen.shape[:2], -1)
    gram: npt.NDArray[np.float32] = (flat.transpose(0, 2, 1) @ flat) * np.float32(step)
    return gram
