"""Arguments and options that several commands share; their values are checked first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ...engines import names
from ...plugin.policy import FORMS
from ...utils.numbers import SHARE, THREADS, IntRange
from ...vision.letterbox import Mode as FitMode
from . import loading
from .number import number
from .option import argument, choice, option, typer
from .other_files import expect_model

__all__ = [
    "MAX_SAMPLES",
    "Cache",
    "CalibrationMode",
    "Engine",
    "FirstImages",
    "Forms",
    "Images",
    "Mode",
    "Model",
    "ModelsMode",
    "Names",
    "Nms",
    "Plugin",
    "PluginOrInstance",
    "Plugins",
    "Precision",
    "Settings",
    "Threads",
    "Weights",
]

MAX_SAMPLES = 1_000_000_000
"""Images that an option may leave of a data set."""


def _engines(incomplete: str) -> list[str]:
    """Names of engines for shell completion."""
    return [name for name in ("auto", *names()) if name.startswith(incomplete)]


Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", callback=expect_model, help="ONNX file, saved engine, or darknet's .cfg."),
]
Weights = Annotated[Path | None, option("FILE", "darknet's weights; default: beside the .cfg.")]
Engine = Annotated[
    str, typer.Option(help="Engine: auto, or a name that `pytrt devices` lists.", autocompletion=_engines)
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE.yaml",
        callback=loading.check_precision,
        help=f"Precision: {', '.join(loading.PRECISIONS)}; or a file of `pytrt precision search`, layer by layer.",
    ),
]
Threads = Annotated[int | None, number(THREADS, "CPU threads; default: the engine decides.")]
Images = Annotated[
    Path | None,
    option(
        "DIR|FILE.yaml",
        "Images, a data.yaml, or .npz files with an array for each input, to calibrate INT8 or FP8 with.",
    ),
]
Cache = Annotated[Path | None, option("FILE", "Calibration cache; default: MODEL with .cache.")]
Plugin = Annotated[str, argument("MODULE:CLASS", "The class; or path/to/file.py:Class.")]
PluginOrInstance = Annotated[
    str, argument("MODULE:CLASS|INSTANCE", "The class or an instance; or path/to/file.py:Class.")
]
Fields = Annotated[
    list[str] | None, option("FIELD=VALUE", "A field's value: groups=4, slope=@slope.npy; may be repeated.", "--set")
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE",
        callback=lambda modules: loading.import_plugins(modules),  # a command has nothing else to do with them
        help="Module or file with plugins of the model; may be repeated.",
    ),
]
Settings = Annotated[
    list[str] | None,
    option("NAME=VALUE", "A setting of the engine, such as batch=1,8,16; may be repeated.", "--setting"),
]
Forms = Annotated[
    list[str] | None,
    option(
        "NAME=FORM",
        f"The form in which a plugin runs, such as acme::Scale=compute: {', '.join(FORMS)}; may be repeated.",
        "--plugin-form",
    ),
]
FirstImages = Annotated[int | None, number(IntRange(1, MAX_SAMPLES), "Use only the first images.")]
Nms = Annotated[float, number(SHARE, "Highest overlap of boxes of a class, 0..1.", metavar="X")]
Names = Annotated[
    Path | None, option("FILE", "Class names, one per line; default: those in the model, or else MODEL with .names.")
]
CalibrationMode = Annotated[
    FitMode,
    choice(
        "How calibration images are fitted. With entropy use stretch: the grey bars of letterbox distort its histogram.",
        "--calibration-fit",
    ),
]
Mode = Annotated[
    FitMode, choice("How images are fitted into the network's input. AlexeyAB's darknet trains with stretch.", "--fit")
]
ModelsMode = Annotated[
    FitMode | None,
    choice(
        "How images are fitted into the network's input; default: as the model says, or else letterbox."
        " AlexeyAB's darknet trains with stretch.",
        "--fit",
    ),
]
