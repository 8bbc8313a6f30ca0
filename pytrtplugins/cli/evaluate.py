"""The command ``pytrt evaluate``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from .. import models
from ..utils.figures import check_figure
from ..utils.numbers import SHARE
from ..utils.optional import require
from .app import app
from .exif import Exif
from .facts import Evaluated
from .shared import loading, option_values, options, tables
from .shared.number import number
from .shared.results import Result

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["evaluate"]


@app.command()  # type: ignore[untyped-decorator]
def evaluate(
    model: options.Model,
    data: Annotated[
        list[Path],
        typer.Option(
            metavar="DIR|TAR|FILE.yaml", help="Images with labels in the YOLO layout, or a data.yaml; repeat for parts."
        ),
    ],
    split: Annotated[
        str, typer.Option(help="The list of images that are evaluated, or the part of a data.yaml.")
    ] = "val.txt",
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
    exif: Exif = None,
    limit: options.FirstImages = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw precision over recall: .png, .svg or .pdf.")
    ] = None,
    settings: options.Settings = None,
    plugins: options.Plugins = None,
) -> Result[Evaluated]:
    """Measure a detector's average precision on labelled images (pycocotools).

    Labels are darknet's, a text file an image. COCO's, VOC's and CVAT's are not read here.

    With --precision int8 an engine for CPUs computes in INT8 even where float32 is faster. A saved engine is what it was built as; the
    first line says what it computes in.

    Examples: pytrt evaluate yolov2-voc.cfg --data labelled/ --precision int8

    pytrt evaluate yolo-fastest-1.1.cfg --names coco.names --data coco/ --fit stretch --plot curves.png
    """
    if plot:
        check_figure(plot)
    labelled = models.YoloData(data, exif=exif)
    built = loading.open_engine(
        model, weights, engine, precision, cache, threads, settings=option_values.read_settings(settings), as_asked=True
    )
    result = models.evaluate(
        loading.open_detector(built, model, names, mode=mode),
        labelled,
        split,
        score_threshold=threshold,
        iou_threshold=nms,
        class_map=option_values.read_pairs(class_map, "--class-map", "NAME_IN_THE_DATA=NAME_IN_THE_MODEL"),
        limit=limit,
    )
    if plot:
        models.draw_curves(result, plot, title=f"{model.name}, {built.name}, {result.computed}")
    found = Evaluated(built.name, built.precision, result)
    return Result(found, functools.partial(tables.print_evaluation, name=str(model)))
