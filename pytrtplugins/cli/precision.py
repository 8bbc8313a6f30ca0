"""The commands ``pytrt precision search``, ``pytrt precision report`` and ``pytrt compare``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from .. import models, precision
from ..calibration import CALIBRATORS
from ..engines.base.engine import Engine
from ..engines.base.engine_file import is_engine_file
from ..errors import NoDataError, UsageError
from ..passes import CODES
from ..precision.scales import make_tables
from ..utils.numbers import FloatRange, IntRange
from ..utils.progress import progress_bar
from ..utils.terminal import COMMAND
from ..vision.letterbox import Mode
from .app import app
from .exif import Exif
from .facts import Searched, Treated, WrittenFile
from .shared import loading, option_values, options, tables
from .shared.groups import NetworkOptions, grouped
from .shared.number import number
from .shared.option import argument, choice, option, typer
from .shared.options import MAX_SAMPLES
from .shared.other_files import expect_model
from .shared.results import Result, show
from .shared.samples import is_labelled, read_samples

__all__ = ["command"]

_LARGEST_SEED, _LARGEST_RATIO, _MAX_RUNS = (1 << 32) - 1, 1_000_000, 1_000_000


def _expect_second(path: Path | None) -> Path | None:
    return None if path is None else expect_model(path)


command: Any = typer.Typer(
    help="Find the layers that need a higher precision, and show why.", result_callback=show, **COMMAND
)
app.add_typer(command, name="precision")

DataOption = Annotated[
    list[Path],
    option(
        "DIR|TAR|FILE.yaml", "Images; .npz files; or, for map50, labelled images in the YOLO layout or a data.yaml."
    ),
]
SamplesOption = Annotated[
    int,
    number(IntRange(1, MAX_SAMPLES), "Number of samples, drawn by --seed, on which tensors are compared.", "--samples"),
]
SeedOption = Annotated[int, number(IntRange(0, _LARGEST_SEED), "Seed for the choice of samples.")]
FitOption = Annotated[Mode, choice("How images are fitted into the network's input.", "--fit")]
ToleranceOption = Annotated[str, option("T", "atol=1e-3,rtol=1e-2,stat=median|max, cosine=0.999, or map50=0.005.")]


def _precision_option(letter: str, *names: str) -> Any:
    text = f"Precision of {letter}, or a precision file."
    return typer.Option(*names, metavar="NAME|FILE.yaml", callback=loading.check_precision, help=text)


@command.command("search")  # type: ignore[untyped-decorator]
@grouped
def search(
    source: NetworkOptions,
    data: DataOption,
    output: Annotated[Path, option("FILE.yaml", "Write the precision file here.", "--output", "-o")],
    low: Annotated[
        Literal["fp16", "bf16", "int8", "fp8"],
        choice("Precision of the layers that do not keep float32.", "--precision"),
    ] = "fp16",
    tolerance: ToleranceOption = "cosine=0.999",
    engine: options.Engine = "auto",
    names: options.Names = None,
    threads: options.Threads = None,
    split: Annotated[str, typer.Option(help="The list of images that are evaluated, for map50.")] = "val.txt",
    exif: Exif = None,
    images: Annotated[
        int | None,
        number(IntRange(1, MAX_SAMPLES), "For map50: evaluate the first N images only.", "--evaluation-size"),
    ] = None,
    limit: SamplesOption = 4,
    seed: SeedOption = 0,
    mode: FitOption = "letterbox",
    algorithm: Annotated[
        Literal["minmax", "entropy", "percentile"],
        choice("Calibration algorithm of the scales that the search begins with, for int8 and fp8."),
    ] = "minmax",
    calibration: Annotated[
        int,
        number(
            IntRange(1, MAX_SAMPLES),
            "Number of images of --data to calibrate with, for int8 and fp8.",
            "--calibration-size",
        ),
    ] = 50,
    per_tensor: Annotated[
        bool, choice("For int8 and fp8: begin with one scale for all weights of a layer.", "--per-tensor")
    ] = False,
    max_latency_ratio: Annotated[
        float | None,
        number(
            FloatRange(1, _LARGEST_RATIO),
            "Largest latency, relative to all layers in low precision; default: no limit.",
            metavar="R",
        ),
    ] = None,
    max_runs: Annotated[int, number(IntRange(2, _MAX_RUNS), "Largest number of evaluations of the network.")] = 200,
    latency: Annotated[
        Literal["modelled", "measured"],
        choice("modelled: from the bytes moved, the same on every machine; measured: on this machine."),
    ] = "modelled",
    settings: options.Settings = None,
    forms: options.Forms = None,
) -> Result[Searched]:
    """Find the layers to keep in float32, and write them into a file that every engine follows.

    The search also writes FILE.json with all figures, for `pytrt precision report`. An interrupted search continues where it stopped.

    Examples: pytrt precision search net.onnx --engine reference --precision fp16 --data images/ -o precision.yaml

    pytrt precision search yolov2.onnx --precision int8 --data voc/ --tolerance map50=0.005 -o precision.yaml
    """
    if not output.absolute().parent.is_dir() or output.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--output {output}: expected a file .yaml in a folder that exists")
    limits, requested_forms = precision.parse_tolerance(tolerance), option_values.read_forms(forms)
    network = precision.Network(
        source.open(),
        engine,
        threads=threads,
        settings=option_values.read_settings(settings),
        plugins=requested_forms,
        fast_build=latency == "modelled",
    )
    inputs = network.reference().inputs
    choice: dict[str, Any] = {"seed": seed, "mode": mode}
    samples = read_samples(data, inputs, limit=limit, **choice, split=_train(data, split))
    scales = {}
    if low in CODES:
        calibrated_on = read_samples(data, inputs, limit=calibration, **choice, split=_train(data, split))
        order = [algorithm, *(name for name in CALIBRATORS if name != algorithm)]
        scales = make_tables(
            network.model, calibrated_on, order, engine=engine, threads=threads, plugins=requested_forms
        )
    judge = None
    if isinstance(limits, precision.MapTolerance):
        judge = _judge(
            network,
            models.YoloData(data, exif=exif),
            split,
            limits,
            names or loading.names_beside(source.model),
            mode,
            images,
        )
    with progress_bar("searching", None) as bar:
        result = precision.search(
            network,
            samples,
            limits,
            low,
            tables=scales,
            per_tensor=per_tensor,
            judge=judge,
            budget=precision.Budget(max_runs, math.inf if max_latency_ratio is None else max_latency_ratio),
            latency=latency,
            journal=output.with_suffix(".journal"),
            identity={
                "data": [str(path) for path in data],
                "calibration": calibration if scales else 0,
                "settings": network.settings,
                **({} if exif is None else {"exif": exif}),
                **choice,
            },
            advance=functools.partial(bar, 1),
        )
    result.precisions.write(output)
    precision.write_json(result, output.with_suffix(".json"))
    return Result(_search_facts(result, output), _print, result.holds)


@command.command("report")  # type: ignore[untyped-decorator]
def report(
    figures: Annotated[Path, argument("FILE.json", "FILE.json that the search wrote next to FILE.yaml.")],
    output: Annotated[Path, option("FILE.html", "Write the page to this file.", "--output", "-o")],
) -> Result[WrittenFile]:
    """Draw the results of a search: errors layer by layer, ranges, latency against accuracy.

    Example: pytrt precision report precision.json -o precision.html
    """
    path = figures.with_suffix(".json") if figures.suffix in (".yaml", ".yml") else figures
    if not path.is_file():
        raise UsageError(
            f"{path}: no such file. `pytrt precision search -o FILE.yaml` writes it as FILE.json", path=path
        )
    precision.write_html(precision.read_report(path), output)
    return Result(WrittenFile(str(output), output.stat().st_size), tables.print_file)


@app.command("compare")  # type: ignore[untyped-decorator]
def compare(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="A", callback=expect_model, help="ONNX file, saved engine, or darknet's .cfg; the reference."
        ),
    ],
    second: Annotated[
        Path | None,
        typer.Argument(
            metavar="[B]",
            callback=_expect_second,
            help="Another model or engine, or the same model for another engine; none with --with.",
        ),
    ] = None,
    beside: Annotated[
        Literal["file"] | None,
        choice("Compare A's outputs with those of its file, run by onnxruntime as it is.", "--with"),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="Engine of A.")] = "reference",
    other_engine: Annotated[str, typer.Option("--engine-b", help="Engine of B.")] = "auto",
    precision_a: Annotated[str, _precision_option("A", "--precision")] = "fp32",
    precision_b: Annotated[str, _precision_option("B")] = "fp32",
    cache: Annotated[Path | None, option("FILE", "Calibration cache for int8.")] = None,
    data: Annotated[list[Path] | None, option("DIR|TAR", "Images or .npz files; default: random numbers.")] = None,
    tolerance: ToleranceOption = "atol=1e-3,rtol=1e-2",
    limit: SamplesOption = 1,
    seed: SeedOption = 0,
    mode: FitOption = "letterbox",
    plugins: options.Plugins = None,
) -> Result[precision.Comparison] | Result[precision.FileComparison]:
    """Compare every tensor of two engines or models, and name the first that differs; exit code 1 if one does.

    All engines share the readers and conversions of this package: where these are wrong, A and B are wrong alike, so two engines are no
    independent comparison. With --with file A is compared with its ONNX file instead: onnxruntime runs it as it is, without optimizations
    and without a conversion of this package, and each output has its largest absolute and relative difference.

    Examples: pytrt compare net.onnx net.onnx --engine-b cpu

    pytrt compare net.onnx --with file --engine cpu
    """
    limits = precision.parse_tolerance(tolerance)
    choice: dict[str, Any] = {"limit": limit, "seed": seed, "mode": mode}

    def opened(path: Path, name: str, kind: str) -> Engine:
        table = cache if kind in CODES else None
        return loading.open_engine(path, engine=name, precision=kind, cache=table, as_asked=True)

    if (second is None) == (beside is None):
        raise UsageError(
            "compare: expected a second model, or --with file.\n"
            f"Do: pytrt compare {first} {first} --engine-b cpu, or pytrt compare {first} --with file --engine cpu"
        )
    if second is None and (is_engine_file(first) or first.suffix.lower() == ".cfg"):
        raise UsageError(
            f"compare --with file: {first} is no ONNX file, which onnxruntime could run as it is.\nDo: name the ONNX file",
            path=first,
        )
    one = opened(first, engine, precision_a)
    other = None if second is None else opened(second, other_engine, precision_b)
    samples = read_samples(data, one.inputs, **choice) if data else [option_values.read_inputs(None, one)]
    if other is None:
        outputs = precision.compare_with_file(first, one, samples, limits)
        return Result(outputs, functools.partial(_print_outputs, engine=one), outputs.agrees)
    result = precision.compare(one, other, samples, limits)
    return Result(result, functools.partial(_print_comparison, engines=(one, other)), result.first_difference is None)


def _print_outputs(result: precision.FileComparison, engine: Engine) -> None:
    print(result, f"A: engine {engine.name}, {result.computed}", sep="\n")


def _print_comparison(result: precision.Comparison, engines: tuple[Engine, Engine]) -> None:
    print(result)
    for letter, engine, computed in zip("AB", engines, result.computed, strict=True):
        print(f"{letter}: engine {engine.name}, {computed}")
    for text, missing in (("A", result.only_in_first), ("B", result.only_in_second)):
        if missing:
            shown = ", ".join(map(repr, missing[:3]))
            print(f"only in {text}: {shown}{f' (and {len(missing) - 3} more)' if len(missing) > 3 else ''}")


def _judge(
    network: precision.Network,
    labelled: models.YoloData,
    split: str,
    tolerance: precision.MapTolerance,
    names: Path | None,
    mode: str,
    images: int | None,
) -> Callable[[Engine], float]:
    def measured(engine: Engine) -> float:
        with models.Yolov2(engine, names, mode=mode) as detector:
            return models.evaluate(detector, labelled, split, limit=images, progress=False).map50

    expected = measured(network.reference())
    if math.isnan(expected):
        raise NoDataError(f"{split}: it has no labelled object of the network's classes")
    return lambda engine: max(0.0, expected - measured(engine)) / tolerance.drop


def _train(data: list[Path], split: str) -> str:
    """The list that tensors are compared and calibrated on: not the one that is evaluated, where there is another."""
    if is_labelled(data):
        dataset = models.YoloData(data)
        try:
            return "train.txt" if dataset.images("train.txt") else split
        except NoDataError:
            return split
    return split


def _search_facts(result: precision.SearchResult, output: Path) -> Searched:
    layers = (
        Treated(name, layer.precision, layer.strategy, layer.reason) for name, layer in result.precisions.layers.items()
    )
    same = ("holds", "reason", "final_before", "final", "latency_before_us", "latency_us", "latency_fp32_us", "runs")
    figures = str(output.with_suffix(".json"))
    return Searched(str(output), figures, tuple(layers), **{name: getattr(result, name) for name in same})


def _print(result: Searched) -> None:
    for layer in result.layers:
        print(f"{layer.layer}: {layer.precision}, {layer.strategy}: {layer.reason}")
    if not result.layers:
        print("every layer computes in low precision")
    state = "outputs within tolerance" if result.holds else f"outputs NOT within tolerance: {result.reason}"
    print(
        f"{state}: error {result.final_before:.3g} -> {result.final:.3g} of the tolerance; latency "
        f"{result.latency_before_us:.4g} -> {result.latency_us:.4g} us (float32: {result.latency_fp32_us:.4g}); {result.runs} runs"
    )
    page = Path(result.figures).with_suffix(".html")
    print(f"{result.file}\nDo: pytrt precision report {result.figures} -o {page}")
