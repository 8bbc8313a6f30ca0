"""The command ``pytrt profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..errors import UsageError
from ..utils.atomic import check_target
from ..utils.figures import check_figure
from ..utils.numbers import LARGEST_BATCH, IntRange
from .app import app
from .facts import Profiled
from .shared import loading, option_values, options
from .shared.groups import NetworkOptions, grouped
from .shared.number import number
from .shared.option import option
from .shared.results import Result

__all__ = ["command"]


@app.command("profile")  # type: ignore[untyped-decorator]
@grouped
def command(
    network: NetworkOptions,
    precision: options.Precision = "fp16",
    cache: options.Cache = None,
    batch: Annotated[int, number(IntRange(1, LARGEST_BATCH), "Images per run, if the model's batch is free.")] = 1,
    trace: Annotated[Path | None, option("FILE.json", "Write a trace for chrome://tracing or Perfetto.")] = None,
    plot: Annotated[Path | None, option("FILE", "Draw a bar chart: .png, .svg or .pdf.")] = None,
    forms: options.Forms = None,
) -> Result[Profiled]:
    """Time a network's layers on an NVIDIA GPU with engine cuda: the kernel of each layer, and how near it comes to the GPU's limits.

    Examples: pytrt profile yolov2.onnx --precision fp16 --plot layers.png

    pytrt profile yolov2.engine --batch 8 --trace layers.json
    """
    if trace is not None:
        check_target(trace)
    if plot is not None:
        check_figure(plot)
    from ..engines.cuda.profile import profile
    from ..engines.cuda.run.context import CudaContext

    engine = loading.open_engine(
        network.model,
        weights=network.weights,
        engine="cuda",
        precision=precision,
        cache=cache,
        settings={"batch": batch},
        plugins=option_values.read_forms(forms),
    )
    with engine.create_context() as context:
        if not isinstance(context, CudaContext):
            raise UsageError(
                f"{network.model}: engine {engine.name!r} cannot time single layers.\nDo: pytrt profile MODEL.onnx"
            )
        times = profile(context, option_values.read_inputs(None, engine, free=batch))
    if trace is not None:
        times.write_trace(trace)
    if plot is not None:
        times.draw(plot, f"{network.model.name}, {engine.precision}: {times.microseconds:.0f} µs")
    return Result(Profiled(times.microseconds, times.steps), lambda _: print(times.table))
