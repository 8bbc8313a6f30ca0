"""The table of all commands of ``pytrt``. Every command is one public call."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from ..utils.optional import require
from ..utils.terminal import COMMAND
from ..version import __version__
from .shared.common import add_options
from .shared.option import typer
from .shared.results import show

typer_core: Any = require("typer.core", extra="cli", package="typer")
typer_main: Any = require("typer.main", extra="cli", package="typer")

__all__ = ["COMMANDS", "GROUPS", "Commands", "app"]

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


class Row(NamedTuple):
    """A row of the table: a command or group with its ``--help`` line, and the modules that add it to the app."""

    summary: str
    modules: tuple[str, ...]


GROUPS = {
    "Networks": {
        "inspect": Row("Show a model's inputs, outputs, layers and plugins", ("cli.inspect",)),
        "import": Row("Convert networks of other libraries to ONNX", ("cli.imports",)),
        "download": Row("Fetch a model that this project publishes", ("cli.download",)),
        "build": Row("Build an engine and save it", ("cli.build",)),
        "extract": Row("Write a part of a network as a model of its own", ("cli.edit",)),
        "replace": Row("Replace a node by a plugin", ("cli.edit",)),
        "embed": Row("Write plugins with their bodies, for onnxruntime", ("cli.edit",)),
        "repair": Row("Find and mend what exporters write wrongly", ("cli.repair",)),
    },
    "Plugins": {
        "check-plugin": Row("Check a plugin on many shapes and types", ("cli.check",)),
        "export-plugin": Row("Write a plugin as a library for TensorRT", ("cli.export",)),
    },
    "Accuracy": {
        "calibrate": Row("Measure on images the scales that INT8 and FP8 need", ("cli.calibrate",)),
        "equalize": Row("Rescale channels so that INT8 loses less accuracy", ("cli.calibrate",)),
        "quantize": Row("Write a model with Q/DQ nodes for TensorRT 11 and others", ("cli.quantize",)),
        "convert": Row("Write a model in float16 or bfloat16", ("cli.quantize",)),
        "evaluate": Row("Measure a detector's average precision", ("cli.evaluate",)),
        "precision": Row("Choose the precision of each layer", ("cli.precision",)),
        "compare": Row("Compare every tensor of two engines or models", ("cli.precision",)),
    },
    "Run and serve": {
        "run": Row("Find objects in images, or run a model on arrays", ("cli.run",)),
        "bench": Row("Compare speed and memory of engines and precisions", ("cli.bench",)),
        "profile": Row("Time a network's layers on an NVIDIA GPU", ("cli.profile",)),
        "serve": Row("Serve models over HTTP", ("cli.serving.serve",)),
        "serve-export": Row("Write the files that serve models on a cluster", ("cli.serving.serve_export",)),
        "serve-key": Row("Make a key for clients of a server", ("cli.serving.serve_key",)),
        "serve-top": Row("Watch the load of a running server", ("cli.serving.serve_top",)),
        "export-triton": Row("Write a model into a Triton model repository", ("cli.export",)),
        "devices": Row("List the engines, and why some do not work here", ("cli.doctor",)),
        "doctor": Row("Show what is installed, and whether engines work", ("cli.doctor",)),
        "config": Row("Show the defaults of options that are in force", ("cli.show_config",)),
    },
    "Data and pipelines": {
        "data": Row("Look at photos before a model is trained or served", ("mlops.cli.data",)),
        "shards": Row("Pack labelled photos for training", ("mlops.cli.shards",)),
        "table": Row("Measure networks, and put the figures in one table", ("mlops.cli.table",)),
        "models": Row("Keep versions of models with what they were made of", ("mlops.cli.models",)),
        "pipeline": Row(
            "Go from photos to a served model with one file",
            ("mlops.cli.pipeline", "mlops.cli.pipeline_export", "mlops.cli.pipeline_report"),
        ),
    },
}
"""The commands by their names, in the groups and in the order in which ``--help`` lists them."""
COMMANDS = {name: row for rows in GROUPS.values() for name, row in rows.items()}
_GROUP_OF = {name: group for group, rows in GROUPS.items() for name in rows}


class Commands(Mapping[str, Any]):
    """Click's commands by name. Each is imported when it is used: importing all takes longer than most commands run."""

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __getitem__(self, name: str) -> Any:
        return _import_command(name)


@functools.cache
def _import_command(name: str) -> Any:
    for module in COMMANDS[name].modules:
        importlib.import_module(f"..{module}", __package__)
    part = typer.Typer(**COMMAND, callback=lambda: None)  # with a callback it is a group
    part.registered_commands = [
        entry for entry in app.registered_commands if (entry.name or entry.callback.__name__) == name
    ]
    part.registered_groups = [entry for entry in app.registered_groups if entry.name == name]
    return add_options(typer_main.get_command(part).commands[name])


class _Group(typer_core.TyperGroup):  # type: ignore[misc]
    """Lists the commands, for help and shell completion, without importing them."""

    def list_commands(self, context: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: Any, name: str) -> Any:
        if name not in COMMANDS:
            return None
        return typer_core.TyperCommand(name, short_help=COMMANDS[name].summary, rich_help_panel=_GROUP_OF[name])

    def resolve_command(self, context: Any, words: list[str]) -> Any:
        name, listed, others = super().resolve_command(context, words)
        return name, listed and self.commands[name], others


app: Any = typer.Typer(cls=_Group, **{**COMMAND, "add_completion": True})


def _print_version(value: bool) -> None:
    if value:
        print(f"pytrtplugins {__version__}")
        raise typer.Exit


@app.callback(help=_HELP, result_callback=show)  # type: ignore[untyped-decorator]
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that all commands share."""
