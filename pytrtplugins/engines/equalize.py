"""Run a network over images, and rescale its channels so that int8 loses less."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..calibration import ChannelMaximaCalibrator
from ..model.ir import to_ir, to_proto
from ..passes import CrossLayerEqualization, prepare
from .calibrate import calibrate

if TYPE_CHECKING:
    import onnx

__all__ = ["equalize"]


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
    depthwise convolutions gain most, with percentile calibration; docs/accuracy.md has figures. The result is an ordinary
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
        >>> images = ImageBatches("photos/", mode="letterbox")                                         # doctest: +SKIP
        >>> model = equalize("net.onnx", images)                                                       # doctest: +SKIP
        >>> engine = build(model, precision="int8", calibration=PercentileCalibrator(images))          # doctest: +SKIP
    """
    prepared = prepare(model)
    calibrator = ChannelMaximaCalibrator(batches)
    calibrate(prepared, calibrator, engine=engine, threads=threads, progress=progress)
    equalized = to_ir(prepared, checked=True)
    CrossLayerEqualization(calibrator.channels)(equalized)
    return to_proto(equalized)
