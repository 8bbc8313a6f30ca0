"""The command ``pytrt build``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from ..utils.atomic import check_target
from ..utils.numbers import LARGEST_BATCH, SHARE, IntRange
from ..vision.letterbox import Mode as FitMode
from . import inspected
from .app import app
from .facts import Built
from .shared import loading, options, tables
from .shared.groups import EngineOptions, grouped
from .shared.number import number
from .shared.option import choice, option
from .shared.other_files import not_an_engine_here
from .shared.results import Result

__all__ = ["build"]


@app.command()  # type: ignore[untyped-decorator]
@grouped
def build(
    network: EngineOptions,
    output: Annotated[Path, option("FILE", "Write the engine to this file.", "--output", "-o")],
    calibration: options.Images = None,
    mode: options.CalibrationMode = "letterbox",
    target: Annotated[
        str | None,
        option(
            "GPUS",
            "For engine tensorrt_rtx: the target GPUs, such as sm86,sm89,sm120. Default: all from sm80 on.",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        number(IntRange(1, LARGEST_BATCH), "Images per run, for darknet's networks; an ONNX file has its own batch."),
    ] = None,
    names: options.Names = None,
    fit: Annotated[
        FitMode | None,
        choice("How images are fitted into the network's input by `pytrt run`; stored in the engine file."),
    ] = None,
    threshold: Annotated[
        float | None, number(SHARE, "Lowest score that `pytrt run` shows; stored in the engine file.", metavar="X")
    ] = None,
) -> Result[Built]:
    """Build an engine and save it, so that it starts faster the next time. The file also stores a detector's class names.

    Examples: pytrt build yolov2.onnx --precision int8 --cache yolov2.cache -o yolov2.engine

    pytrt build yolov2.onnx --engine tensorrt --precision fp16 --setting batch=1,8,16 -o yolov2.engine

    pytrt build yolov2.onnx --engine tensorrt_rtx --target sm86,sm120 -o yolov2.engine

    pytrt build yolov2.onnx --precision precision.yaml -o yolov2.engine
    """
    check_target(output)
    if loading.is_engine_file(network.model):
        raise not_an_engine_here(network.model)
    started = time.perf_counter()
    built = network.open_engine(
        {} if target is None else {"target": target},
        calibration=calibration,
        mode=mode,
        batch=batch,
        details={"names": names, "mode": fit, "score_threshold": threshold},
    )
    built.save(output)
    seconds, size = time.perf_counter() - started, output.stat().st_size
    facts = Built(inspected.engine_facts(built, output), built.chosen_kernels(), seconds, size)
    return Result(facts, tables.print_built)
