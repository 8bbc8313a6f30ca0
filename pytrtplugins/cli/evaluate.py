"""The command ``pytrt evaluate``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from .. import models
from ..utils.figures import check_figure
from ..utils.numbers import SHARE
from .app import app
from .exif import Exif
from .facts import Evaluated
from .shared import loading, option_values, options, tables
from .shared.groups import EngineOptions, grouped
from .shared.number import number
from .shared.option import option, typer
from .shared.results import Result

__all__ = ["evaluate"]


@app.command()  # type: ignore[untyped-decorator]
@grouped
def evaluate(
    network: EngineOptions,
    data: Annotated[
        list[Path],
        option("DIR|TAR|FILE.yaml", "Images with labels in the YOLO layout, or a data.yaml; repeat for parts."),
    ],
    split: Annotated[
        str, typer.Option(help="The list of images that are evaluated, or the part of a data.yaml.")
    ] = "val.txt",
    names: options.Names = None,
    threshold: Annotated[float, number(SHARE, "Lowest score that counts, 0..1.", metavar="X")] = 0.005,
    nms: options.Nms = 0.45,
    mode: options.ModelsMode = None,
    class_map: Annotated[
        list[str] | None, option("DATA=MODEL", "A class's name in the data, and its name in the model.", "--class-map")
    ] = None,
    exif: Exif = None,
    limit: options.FirstImages = None,
    plot: Annotated[Path | None, option("FILE", "Draw precision over recall: .png, .svg or .pdf.")] = None,
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
    built = network.open_engine(as_asked=True)
    result = models.evaluate(
        loading.open_detector(built, network.model, names, mode=mode),
        labelled,
        split,
        score_threshold=threshold,
        iou_threshold=nms,
        class_map=option_values.read_pairs(class_map, "--class-map", "NAME_IN_THE_DATA=NAME_IN_THE_MODEL"),
        limit=limit,
    )
    if plot:
        models.draw_curves(result, plot, title=f"{network.model.name}, {built.name}, {result.computed}")
    evaluated = Evaluated(built.name, built.precision, result)
    return Result(evaluated, functools.partial(tables.print_evaluation, name=str(network.model)))
