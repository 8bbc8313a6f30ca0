"""The command ``pytrt bench``."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Annotated

from ..bench import Benchmark, bench
from ..errors import UsageError
from ..utils.figures import check_figure
from ..utils.numbers import LARGEST_BATCH, MAX_SLOTS, FloatRange, IntRange
from .app import app
from .shared import loading, option_values, options, tables
from .shared.groups import NetworkOptions, grouped
from .shared.number import number
from .shared.option import option
from .shared.results import Result

__all__ = ["command"]

_MAX_ROUNDS, _MAX_SECONDS = 1000, 3600.0


@app.command("bench")  # type: ignore[untyped-decorator]
@grouped
def command(
    network: NetworkOptions,
    engine: Annotated[
        str, option("NAME,...", "Engines that `pytrt devices` lists; the first is the baseline.")
    ] = "auto",
    precision: Annotated[
        str, option("NAME,...", f"Precisions; each is tried on each engine: {', '.join(loading.PRECISIONS)}.")
    ] = "fp32",
    cache: options.Cache = None,
    threads: options.Threads = None,
    inputs: Annotated[
        list[str] | None, option("NAME=FILE.npy", "Array for an input; default: random numbers.", "--input")
    ] = None,
    batch: Annotated[int, number(IntRange(1, LARGEST_BATCH), "Images per run: the size of free dims.")] = 1,
    rounds: Annotated[int, number(IntRange(1, _MAX_ROUNDS), "Rounds in which the engines take turns.")] = 5,
    seconds: Annotated[
        float, number(FloatRange(0.001, _MAX_SECONDS), "Seconds for the runs of each engine.", metavar="X")
    ] = 2.0,
    slots: Annotated[int, number(IntRange(1, MAX_SLOTS), "Simultaneous runs for the throughput.")] = 2,
    settings: options.Settings = None,
    forms: options.Forms = None,
    plot: Annotated[Path | None, option("FILE", "Draw the latencies: .png, .svg or .pdf.")] = None,
) -> Result[Benchmark]:
    """Compare the latency (p50, p90, p99), throughput and memory of engines and precisions.

    The engines run in this process and take turns, so that load from other programs slows all of them.
    Their outputs are compared first: an engine whose outputs differ from the first row's is not timed, and the exit code is 1.

    p50, p90, p99: time of a run, from arrays on the host to arrays on the host.
    p50 is the median of the rounds' medians; p90 and p99 are taken over all runs.

    speed: the first row's p50 over this row's p50.

    runs/s: throughput, with --slots runs at a time.

    memory: growth of this process (GPU: of the GPU's used memory) while the engine was built and first run.

    error: distance from the first row's outputs, over their norm; INT8 and FP8 may be any distance away.

    A row computes in its precision even where the engine would keep float32 because that is faster; lines below the table say which layers
    do. --setting int8=measured lets engines for CPUs choose.

    Examples: pytrt bench yolov2.onnx --engine cpu,onnxruntime

    pytrt bench yolov2.onnx --engine cpu,onnxruntime --precision fp32,int8 --plot bench.png

    pytrt bench yolov2.engine --seconds 10
    """
    if plot:
        check_figure(plot)
    names = list(
        dict.fromkeys(
            itertools.product(
                option_values.read_words(engine, "--engine"), option_values.read_words(precision, "--precision")
            )
        )
    )
    for _, precision_name in names:
        loading.check_precision(precision_name)
    if loading.is_engine_file(network.model) and len(names) > 1:
        raise UsageError(
            f"{network.model} is built already, for one engine in one precision.\nDo: pytrt bench {network.model}"
        )
    opened = {
        _title(network.model, *name): functools.partial(
            loading.open_engine,
            network.model,
            network.weights,
            *name,
            cache,
            threads,
            settings=option_values.read_settings(settings),
            plugins=option_values.read_forms(forms),
            as_asked=True,
        )
        for name in names
    }
    benchmark = bench(
        opened,
        lambda built: option_values.read_inputs(inputs, built, free=batch),
        rounds=rounds,
        seconds=seconds,
        slots=slots,
    )
    if plot:
        benchmark.draw(plot, network.model.name)
    return Result(benchmark, tables.print_benchmark, benchmark.agree)


def _title(model: Path, engine: str, precision: str) -> str:
    return model.name if loading.is_engine_file(model) else f"{engine} {precision}"
