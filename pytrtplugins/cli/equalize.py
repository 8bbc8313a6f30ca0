"""The command ``pytrt equalize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .. import engines
from ..calibration import ImageBatches
from ..errors import UsageError
from ..utils.files import write_atomic
from ..utils.optional import require
from . import loading
from .app import app
from .options import (
    CalibrationModeOption,
    EngineOption,
    FirstImagesOption,
    Mode,
    ModelArgument,
    PluginsOption,
    ThreadsOption,
    WeightsOption,
)

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["command"]

_ROUNDED_WITH = 8  # images, or fewer where the limit says so


@app.command("equalize")  # type: ignore[untyped-decorator]
def command(
    model: ModelArgument,
    calibration: Annotated[Path, typer.Option(metavar="DIR", help="Images like those to be looked at; 20 are enough.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.onnx", help="Model to write.")],
    weights: WeightsOption = None,
    limit: FirstImagesOption = 20,
    mode: CalibrationModeOption = Mode.LETTERBOX,
    round_weights: Annotated[
        bool, typer.Option("--round-weights", help="Round the weights together too; for CPUs without VNNI.")
    ] = False,
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
    plugins: PluginsOption = None,
) -> None:
    """Rescale the channels of a network so that INT8 loses less; in float it computes the same.

    The model that is written is calibrated and built as any other. Networks with depthwise convolutions gain most,
    and calibration by percentile (`pytrt calibrate --algorithm percentile`) suits it best. With --round-weights its weights
    are those that INT8 has on this machine, in float too: build it on a machine of the same kind.

    Example: pytrt equalize mobile.onnx --calibration photos/ -o mobile-equalized.onnx
    """
    loading.import_plugins(plugins or [])
    if not output.absolute().parent.is_dir() or output.suffix != ".onnx":
        raise UsageError(f"--output {output}: expected a file .onnx in a folder that exists")
    batches = ImageBatches(calibration, limit=limit, mode=mode.value)
    equalized = engines.equalize(loading.open_model(model, weights), batches, engine=engine, threads=threads)
    if round_weights:
        batches = ImageBatches(calibration, limit=min(limit or _ROUNDED_WITH, _ROUNDED_WITH), mode=mode.value)
        equalized = engines.round_weights(equalized, batches, engine=engine, threads=threads)
    write_atomic(output, equalized.SerializeToString())
    print(output)
