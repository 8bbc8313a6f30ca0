"""The commands of ``pytrt``: arguments only; every verb is one public call."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from .. import engines, models, passes
from ..calibration import ImageBatches
from ..calibration.batches import MAX_IMAGES
from ..engines.calibrate import network_digest
from ..errors import UsageError
from ..utils.figures import check_figure
from ..utils.files import check_target, write_atomic
from ..utils.numbers import LARGEST_BATCH, SHARE, Whole
from ..utils.optional import require
from ..utils.terminal import COMMAND
from ..version import __version__
from ..vision.letterbox import Mode as FitMode
from . import inspected, loading, options, tables
from .config import Defaults, find_config, open_config, read_config
from .facts import Built, Calibrated, Devices, Evaluated, WrittenFile
from .fused import FusedFacts, inspect_fused
from .model_facts import DarknetFacts, EngineFacts, ModelFacts, Nodes
from .options import number
from .other_files import not_an_engine_here
from .results import Result, show

if TYPE_CHECKING:
    from ..engines.cuda import CudaEngine

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["app"]

_HELP = """Build, run, calibrate and check networks with your own layers.

MODEL is an ONNX file, a saved engine, or darknet's .cfg (with its .weights beside it).

Every command takes -q, which prints errors only, and -v, which prints what happens and everything that a library reported.
`pytrt --install-completion` lets the shell complete commands and options (bash, zsh, fish, PowerShell).

Examples:

  pytrt doctor

  pytrt inspect yolov2-voc.cfg

  pytrt run yolov2-voc.cfg dog.jpg images/ --output found/

  pytrt calibrate yolov2.onnx --calibration images/ --cache yolov2.cache

  pytrt build yolov2.onnx --precision int8 --cache yolov2.cache -o yolov2.engine

  pytrt bench yolov2.onnx --engine cpu,onnxruntime --precision fp32,int8

  pytrt check-plugin mylayers:ChannelShuffle
"""


_ROUNDED_WITH = 8  # images, or fewer where the limit says so
_MAX_EVALUATED = 1000  # boxes of an image; pycocotools takes 100 of each class


app: Any = typer.Typer(**{**COMMAND, "add_completion": True})


def _print_version(asked: bool) -> None:
    if asked:
        print(f"pytrtplugins {__version__}")
        raise typer.Exit


@app.callback(help=_HELP, result_callback=show)  # type: ignore[untyped-decorator]
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What all commands share."""


@app.command()  # type: ignore[untyped-decorator]
def devices() -> Result[Devices]:
    """List the engines: which work on this machine, and why the others do not.

    Examples: pytrt devices

    pytrt devices --json
    """
    return Result(Devices(engines.auto_engine(), tuple(engines.availability())), tables.print_devices)


@app.command("config")  # type: ignore[untyped-decorator]
def show_config(
    context: typer.Context,  # type: ignore[name-defined]
    file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Read this file instead of the one that is found.")
    ] = None,
) -> Result[Defaults]:
    """Show the defaults of options that are in force, and the file that they come from.

    The file is pytrt.toml in the working directory or the nearest folder above it, or the table [tool.pytrt] of a pyproject.toml. It has
    a table for each command, whose keys are the long names of options.

    Examples: pytrt config

    pytrt config --config other.toml
    """
    path = file or find_config(Path.cwd())
    found = Defaults("", ()) if path is None else read_config(open_config(path), context.find_root().command)
    return Result(found, tables.print_defaults)


@app.command()  # type: ignore[untyped-decorator]
def inspect(
    model: options.Model,
    weights: Annotated[
        Path | None, typer.Argument(metavar="[WEIGHTS]", help="darknet's weights, to check that they fit.")
    ] = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="List the nodes, with the names, types and dims of their tensors.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="List the nodes whose operators this engine lacks; with --fused: the engine that fuses.",
        ),
    ] = None,
    fused: Annotated[
        bool,
        typer.Option("--fused", help="Show which nodes the engine runs as one kernel; the network is built for it."),
    ] = False,
    graph: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="With --fused: draw the network before and after.")
    ] = None,
    precision: options.Precision = "fp32",
    cache: options.Cache = None,
    plugins: options.Plugins = None,
) -> Result[ModelFacts] | Result[Nodes] | Result[EngineFacts] | Result[DarknetFacts] | Result[FusedFacts]:
    """Show the inputs, outputs, layers and plugins of a model, and nodes that no engine knows, or that one engine lacks.

    Examples: pytrt inspect yolov2-voc.cfg yolov2-voc.weights

    pytrt inspect model.onnx --nodes

    pytrt inspect model.onnx --engine cpu

    pytrt inspect model.onnx --fused --graph fused.svg
    """
    if fused:
        return inspect_fused(model, weights, engine or "auto", precision, cache, graph)
    if graph is not None:
        raise UsageError(f"--graph {graph} needs --fused.")
    if engine is not None:
        opened = loading.open_model(model, weights)
        nodes_lacking = inspected.lacking(opened, engines.unsupported_nodes(opened, engine))
        return Result(Nodes(nodes_lacking, engine), tables.print_nodes)
    if nodes:
        return Result(Nodes(inspected.listed(loading.open_model(model, weights))), tables.print_nodes)
    if model.suffix == ".cfg":
        return inspected.inspect_darknet(model, weights)
    if loading.is_engine_file(model):
        return Result(inspected.engine_facts(loading.open_engine(model), model), tables.print_engine)
    return Result(inspected.model_facts(loading.open_model(model, weights), str(model)), tables.print_model)


@app.command()  # type: ignore[untyped-decorator]
def build(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Engine file to write.")],
    weights: options.Weights = None,
    engine: options.Engine = "auto",
    precision: options.Precision = "fp32",
    calibration: options.Images = None,
    cache: options.Cache = None,
    threads: options.Threads = None,
    mode: options.CalibrationMode = "letterbox",
    settings: options.Settings = None,
    batch: Annotated[
        int | None,
        number(Whole(1, LARGEST_BATCH), help="Images per run, for darknet's networks; an ONNX file has its own batch."),
    ] = None,
    names: options.Names = None,
    fit: Annotated[
        FitMode | None,
        typer.Option(help="How `pytrt run` fits images into the network's input; stored in the engine file."),
    ] = None,
    threshold: Annotated[
        float | None, number(SHARE, metavar="X", help="Lowest score that `pytrt run` shows; stored in the engine file.")
    ] = None,
    forms: options.Forms = None,
    plugins: options.Plugins = None,
) -> Result[Built]:
    """Build an engine and save it, so that it starts faster the next time. The file also stores a detector's class names.

    Examples: pytrt build yolov2.onnx --precision int8 --cache yolov2.cache -o yolov2.engine

    pytrt build yolov2.onnx --engine tensorrt --precision fp16 --setting batch=1,8,16 -o yolov2.engine

    pytrt build yolov2.onnx --precision precision.yaml -o yolov2.engine
    """
    check_target(output)
    if loading.is_engine_file(model):
        raise not_an_engine_here(model)
    started = time.perf_counter()
    built = loading.open_engine(
        model,
        weights=weights,
        engine=engine,
        precision=precision,
        calibration=calibration,
        cache=cache,
        threads=threads,
        mode=mode,
        settings=loading.read_settings(settings),
        plugins=loading.read_forms(forms),
        batch=batch,
        said={"names": names, "mode": fit, "score_threshold": threshold},
    )
    built.save(output)
    rows = cast("CudaEngine", built).tactics() if built.name == "cuda" else ()
    seconds, size = time.perf_counter() - started, output.stat().st_size
    found = Built(inspected.engine_facts(built, output), inspected.kernel_facts(rows), seconds, size)
    return Result(found, tables.print_built)


@app.command()  # type: ignore[untyped-decorator]
def calibrate(
    model: options.Model,
    calibration: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="A few hundred images like those that the network will see; or .npz files, with an array for each input.",
        ),
    ],
    cache: options.Cache = None,
    weights: options.Weights = None,
    algorithm: Annotated[
        Literal["entropy", "minmax", "percentile"], typer.Option(help="How the scales are chosen.")
    ] = "minmax",
    batch: Annotated[int, number(Whole(1, MAX_IMAGES), help="Images per run.")] = 8,
    limit: options.FirstImages = None,
    mode: options.CalibrationMode = "letterbox",
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    forms: options.Forms = None,
    plugins: options.Plugins = None,
) -> Result[Calibrated]:
    """Measure on images the scales that INT8 and FP8 need, and save them in a cache file (TensorRT's format).

    Example: pytrt calibrate yolov2.onnx --calibration images/ --cache yolov2.cache
    """
    path = cache or model.with_suffix(".cache")
    check_target(path)
    calibrator = loading.make_calibrator(algorithm, calibration, path, batch=batch, limit=limit, mode=mode)
    prepared = passes.prepare(loading.open_model(model, weights))
    table = engines.calibrate(prepared, calibrator, engine=engine, threads=threads, plugins=loading.read_forms(forms))
    calibrator.store_table(table, network=network_digest(prepared))
    found = Calibrated(str(path), len(table), table.algorithm)
    return Result(found, lambda found: print(f"{found.file}: {found.tensors} tensors, {found.algorithm}"))


@app.command("equalize")  # type: ignore[untyped-decorator]
def equalize(
    model: options.Model,
    calibration: Annotated[
        Path, typer.Option(metavar="DIR", help="Images like those that the network will see; 20 are enough.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.onnx", help="Model to write.")],
    weights: options.Weights = None,
    limit: options.FirstImages = 20,
    mode: options.CalibrationMode = "letterbox",
    round_weights: Annotated[
        bool,
        typer.Option("--round-weights", help="Also round the weights of each layer together; for CPUs without VNNI."),
    ] = False,
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    plugins: options.Plugins = None,
) -> Result[WrittenFile]:
    """Rescale the channels of a network so that INT8 loses less accuracy; in float the results stay the same.

    Calibrate and build the new model like any other. Networks with depthwise convolutions gain most,
    and calibration by percentile (`pytrt calibrate --algorithm percentile`) suits it best. With --round-weights its weights
    are those that INT8 has on this machine, in float too: build it on a machine of the same kind.

    Example: pytrt equalize mobile.onnx --calibration images/ -o mobile-equalized.onnx
    """
    if not output.absolute().parent.is_dir() or output.suffix != ".onnx":
        raise UsageError(f"--output {output}: expected a file .onnx in a folder that exists")
    batches = ImageBatches(calibration, limit=limit, mode=mode)
    equalized = engines.equalize(loading.open_model(model, weights), batches, engine=engine, threads=threads)
    if round_weights:
        batches = ImageBatches(calibration, limit=min(limit or _ROUNDED_WITH, _ROUNDED_WITH), mode=mode)
        equalized = engines.round_weights(equalized, batches, engine=engine, threads=threads)
    write_atomic(output, equalized.SerializeToString())
    return Result(WrittenFile(str(output), output.stat().st_size), tables.print_file)


@app.command()  # type: ignore[untyped-decorator]
def evaluate(
    model: options.Model,
    data: Annotated[
        list[Path], typer.Option(metavar="DIR|TAR", help="Labelled images in the YOLO layout; repeat for parts.")
    ],
    split: Annotated[str, typer.Option(help="The list of images in it.")] = "val.txt",
    weights: options.Weights = None,
    names: options.Names = None,
    engine: options.Engine = "auto",
    precision: options.Precision = "fp32",
    cache: options.Cache = None,
    threads: options.Threads = None,
    threshold: Annotated[float, number(SHARE, metavar="X", help="Lowest score that counts, 0..1.")] = 0.005,
    nms: options.Nms = 0.45,
    mode: options.ModelsMode = None,
    class_map: Annotated[
        list[str] | None,
        typer.Option(
            "--class-map", metavar="DATA=MODEL", help="A class's name in the data, and its name in the model."
        ),
    ] = None,
    limit: options.FirstImages = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw precision over recall: .png, .svg or .pdf.")
    ] = None,
    plugins: options.Plugins = None,
) -> Result[Evaluated]:
    """Measure a detector's average precision on labelled images (pycocotools).

    Examples: pytrt evaluate yolov2-voc.cfg --data labelled/ --precision int8

    pytrt evaluate yolo-fastest-1.1.cfg --names coco.names --data coco/ --mode stretch --plot curves.png
    """
    if plot:
        check_figure(plot)
    labelled = models.YoloData(data)
    built = loading.open_engine(
        model, weights=weights, engine=engine, precision=precision, cache=cache, threads=threads
    )
    result = models.evaluate(
        loading.open_detector(built, model, names, mode=mode, max_detections=_MAX_EVALUATED),
        labelled,
        split,
        score_threshold=threshold,
        iou_threshold=nms,
        class_map=loading.read_pairs(class_map, "--class-map", "NAME_IN_THE_DATA=NAME_IN_THE_MODEL"),
        limit=limit,
    )
    if plot:
        models.draw_curves(result, plot, title=f"{model.name}, {built.name}, {built.precision}")
    found = Evaluated(built.name, built.precision, result)
    return Result(found, functools.partial(tables.print_evaluation, name=str(model)))
