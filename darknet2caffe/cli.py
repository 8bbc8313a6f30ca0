"""The command ``darknet2caffe``; each subcommand is one public call."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pytrtplugins.errors import MissingExtraError, UsageError
from pytrtplugins.utils.atomic import check_target
from pytrtplugins.utils.numbers import IntRange
from pytrtplugins.utils.optional import require
from pytrtplugins.utils.terminal import COMMAND, exit_on_error

from .dialect import DialectChoice
from .fold import BnEps
from .graph import open_svg, write_svg
from .inspect import table, weights_line
from .layers import Shape
from .network import Network, read_network
from .to_caffe import to_caffe
from .to_onnx import Activation, BatchSize, CustomLayers, write_onnx

try:
    typer = require("typer", extra="cli", feature="the command darknet2caffe")
    typer_core = require("typer.core", extra="cli", package="typer")
except MissingExtraError as error:
    sys.exit(f"MissingExtraError: {error}")

__all__ = ["app", "main", "print_network"]

_SIDES, _IMAGES = IntRange(1, 16_384), IntRange(1, 65_536)

_HELP = """Convert darknet networks (.cfg and .weights) to ONNX and caffe.

Without a command's name, the arguments are those of [bold]convert[/bold].

Examples:

  darknet2caffe yolov2-voc.cfg yolov2-voc.weights -o yolov2-voc.onnx

  darknet2caffe yolov2-voc.cfg yolov2-voc.weights -o yolov2-voc.onnx --input-size 608x608 --batch dynamic --inline

  darknet2caffe yolov2-voc.cfg yolov2-voc.weights --caffe yolov2-voc

  darknet2caffe inspect yolov2-voc.cfg yolov2-voc.weights

  darknet2caffe inspect yolov2-voc.cfg --graph yolov2-voc.svg
"""


class _DefaultConvert(typer_core.TyperGroup):  # type: ignore[misc, name-defined]
    """A group whose command ``convert`` need not be named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["convert", *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


app: Any = typer.Typer(cls=_DefaultConvert, help=_HELP, **COMMAND)


CfgArgument = Annotated[Path, typer.Argument(metavar="CFG", help="The .cfg of the network.")]
InputSizeOption = Annotated[
    str | None, typer.Option(metavar="WxH", help="Input size instead of the cfg's, such as 608x608.")
]
DialectOption = Annotated[
    DialectChoice,
    typer.Option(
        help="Dialect of the cfg: pjreddie's darknet or AlexeyAB's fork, which differ in places (docs/reference/darknet.md)."
        " auto chooses the fork's dialect if the cfg has something that only the fork knows, and says what."
    ),
]


@app.command()  # type: ignore[untyped-decorator]
def convert(
    cfg: CfgArgument,
    weights: Annotated[Path, typer.Argument(metavar="WEIGHTS", help="The .weights of the network.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT.onnx", help="Write the model to this file.")
    ] = None,
    caffe: Annotated[
        Path | None, typer.Option(metavar="PREFIX", help="Also write PREFIX.prototxt and PREFIX.caffemodel.")
    ] = None,
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Fold batch normalization into the convolutions.")
    ] = True,
    activation: Annotated[
        Activation, typer.Option(help="Replace leaky by relu, or relu by leaky; both change the results.")
    ] = "as-is",
    bn_eps: Annotated[
        BnEps | None,
        typer.Option(
            help="Form of batch normalization: that of darknet's CPU code, sqrt(v) + 1e-6, or of its CUDA code,"
            " sqrt(v + 1e-5), with which most published weights were trained. The default is that of the dialect's CPU code:"
            " darknet-cpu for pjreddie's, darknet-gpu for the fork's."
        ),
    ] = None,
    dialect: DialectOption = "auto",
    input_size: InputSizeOption = None,
    batch: Annotated[str, typer.Option(metavar="N|dynamic", help="Images per run.")] = "1",
    functions: Annotated[
        bool,
        typer.Option(
            "--functions", help="Add Reorg, Region and Yolo as ONNX functions, so that onnxruntime can run the file."
        ),
    ] = False,
    inline: Annotated[
        bool,
        typer.Option(
            "--inline",
            help="Write Reorg, Region and Yolo as standard operators, so that any ONNX runtime can run the file.",
        ),
    ] = False,
    external_data: Annotated[
        bool,
        typer.Option("--external-data", help="Put the weights into OUT.onnx.DIGEST.data; always done from 2 GiB on."),
    ] = False,
) -> None:
    """Convert a network to ONNX (-o), caffe (--caffe), or both.

    Example: darknet2caffe yolov2-voc.cfg yolov2-voc.weights -o yolov2-voc.onnx
    """
    if output is None and caffe is None:
        raise UsageError("nothing to write.\nDo: give -o OUT.onnx, or --caffe PREFIX, or both.")
    if functions and inline:
        raise UsageError("--functions and --inline exclude each other: functions stay nodes, inlined layers do not")
    images = _parse_batch(batch)
    if caffe is not None and images == "dynamic":
        raise UsageError("--batch dynamic: caffe files need a number")
    size = None if input_size is None else _parse_size(input_size)
    network = read_network(cfg, weights, dialect=dialect)
    _print_dialect(network)
    options: dict[str, Any] = {
        "fold": fold,
        "activation": activation,
        "bn_eps": bn_eps,
        "input_size": size,
        "batch": images,
    }
    if output is not None:
        custom_layers: CustomLayers = "functions" if functions else "inline" if inline else "nodes"
        check_target(output)
        files = write_onnx(network, output, custom_layers=custom_layers, external_data=external_data or None, **options)
        sized = network if size is None else network.with_input_size(*size)
        outputs = ", ".join(f"{layer.name} {_dims(images, layer.dims)}" for layer in sized.outputs)
        print(f"{', '.join(map(str, files))}: {_dims(images, sized.dims)} → {outputs}")
    if caffe is not None:
        check_target(caffe)
        for path in to_caffe(network, caffe, **options):
            print(path)


@app.command()  # type: ignore[untyped-decorator]
def inspect(
    cfg: CfgArgument,
    weights: Annotated[
        Path | None, typer.Argument(metavar="[WEIGHTS]", help="The .weights, to check that they fit.")
    ] = None,
    input_size: InputSizeOption = None,
    graph: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.svg|open", help="Draw the network as well: save the image, or open it in the browser."
        ),
    ] = None,
    dialect: DialectOption = "auto",
) -> None:
    """Show a network's layers as darknet does, and check that the weights fit.

    For example:

      darknet2caffe inspect yolov2-voc.cfg yolov2-voc.weights

      darknet2caffe inspect yolov2-voc.cfg --graph yolov2-voc.svg

      darknet2caffe inspect yolov2-voc.cfg --graph open
    """
    if graph is not None:
        _check_graph(graph)
    network = read_network(cfg, dialect=dialect)
    if input_size is not None:
        network = network.with_input_size(*_parse_size(input_size))
    print_network(network)
    if weights is not None:
        print(weights_line(read_network(network.cfg, weights, dialect=network.dialect)))
    if graph == "open":
        path, shown = open_svg(network)
        print(path if shown else f"{path}: open it by hand, no browser was found")
    elif graph is not None:
        write_svg(network, graph)
        print(graph)


def print_network(network: Network) -> None:
    """Print a network's layers as darknet does, and what the header of its weights says."""
    _print_dialect(network)
    console = require("rich.console", extra="cli").Console
    console(width=None if sys.stdout.isatty() else 120, highlight=False).print(table(network))
    if network.weights is not None:
        print(weights_line(network))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with these words, or with the process's; errors of this package are printed without a traceback, with exit code 2."""
    with exit_on_error():
        _command()(args=None if arguments is None else list(arguments), prog_name="darknet2caffe")


@functools.cache
def _command() -> Any:
    """The command with all its parts; typer would make it anew for each call."""
    return require("typer.main", extra="cli", package="typer").get_command(app)


def _check_graph(text: str) -> None:
    if text == "open":
        return
    if Path(text).suffix.lower() != ".svg":
        raise UsageError(
            f"--graph {text}: expected a name that ends in .svg, the one format that is drawn, or the word open.\n"
            f"Do: --graph {Path(text).with_suffix('.svg') if Path(text).name else 'network.svg'}, or --graph open"
        )
    check_target(Path(text))


def _parse_size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    try:
        return _SIDES.read(width), _SIDES.read(height)
    except ValueError:
        raise UsageError(f"--input-size {text[:40]}: expected width x height, such as 416x416, each {_SIDES}") from None


def _parse_batch(text: str) -> BatchSize:
    if text == "dynamic":
        return "dynamic"
    try:
        return _IMAGES.read(text)
    except ValueError:
        raise UsageError(f"--batch {text[:40]}: expected {_IMAGES}, or dynamic") from None


def _dims(images: BatchSize, dims: Shape) -> str:
    return " x ".join(map(str, ("N" if images == "dynamic" else images, *dims)))


def _print_dialect(network: Network) -> None:
    """Print the dialect that ``--dialect auto`` chose, and why."""
    print(f"dialect: {network.dialect} ({network.dialect_reason})")
