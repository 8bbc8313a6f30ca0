"""Arguments and options that several commands of ``pytrt`` take."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

from ..plugin.policy import FORMS
from ..utils.numbers import SHARE, THREADS, Whole
from ..utils.optional import require
from . import loading
from .numbers import number

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = [
    "MAX_SAMPLES",
    "CacheOption",
    "CalibrationModeOption",
    "EngineOption",
    "FirstImagesOption",
    "FormsOption",
    "ImagesOption",
    "JsonOption",
    "Mode",
    "ModeOption",
    "ModelArgument",
    "NamesOption",
    "NmsOption",
    "PluginsOption",
    "PrecisionOption",
    "SettingsOption",
    "ThreadsOption",
    "WeightsOption",
]

MAX_SAMPLES = 1_000_000_000
"""Images that an option may leave of a data set."""


class Mode(str, Enum):
    """Values of ``--mode``."""

    LETTERBOX = "letterbox"
    DARKNET = "darknet"
    STRETCH = "stretch"


ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file, saved engine, or darknet's .cfg.")]
WeightsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="darknet's weights; default: beside the .cfg.")
]
EngineOption = Annotated[str, typer.Option(help="auto, or a name that `pytrt devices` lists.")]
PrecisionOption = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE.yaml",
        callback=loading.check_precision,
        help=f"{', '.join(loading.PRECISIONS)}; or a file of `pytrt precision search`, layer by layer.",
    ),
]
ThreadsOption = Annotated[int | None, number(THREADS, help="CPU threads; default: the engine decides.")]
ImagesOption = Annotated[Path | None, typer.Option(metavar="DIR", help="Images to calibrate INT8 with.")]
CacheOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Calibration cache; default: MODEL with .cache.")
]
PluginsOption = Annotated[
    list[str] | None, typer.Option(metavar="MODULE", help="Module or file with plugins of the model; may be repeated.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--setting", metavar="NAME=VALUE", help="The engine's own setting, such as batch=1,8,16; repeatable."),
]
FormsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="NAME=FORM",
        help=f"The form in which a plugin runs, such as acme::Scale=compute: {', '.join(FORMS)}; repeatable.",
    ),
]
FirstImagesOption = Annotated[int | None, number(Whole(1, MAX_SAMPLES), help="Use only the first images.")]
NmsOption = Annotated[float, number(SHARE, metavar="X", help="Highest overlap of boxes of a class, 0..1.")]
NamesOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Class names, one a line; default: MODEL with .names, if it exists.")
]
CalibrationModeOption = Annotated[
    Mode,
    typer.Option(
        help="How calibration images are fitted. The grey bars of letterbox mislead entropy: give it stretch."
    ),
]
ModeOption = Annotated[
    Mode,
    typer.Option(help="How images are fitted into the network's input. AlexeyAB's darknet trains with stretch."),
]
JsonOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JSON.")]
