"""The commands of ``pytrt import``, which convert networks of other frameworks to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from ..errors import UsageError
from ..model import write_onnx
from ..mxnet import from_mxnet
from ..utils.atomic import check_target
from ..utils.terminal import COMMAND
from .app import app
from .facts import Imported
from .inspected import model_facts
from .shared import option_values
from .shared.option import argument, choice, option, typer
from .shared.results import Result, show

__all__ = ["command"]

command: Any = typer.Typer(
    help="Convert the files of another framework to an ONNX model.", result_callback=show, **COMMAND
)
app.add_typer(command, name="import")


@command.callback()  # type: ignore[untyped-decorator]
def _frameworks() -> None:
    """Keeps ``import`` a group: typer would turn a group with one command into that command."""


@command.command("mxnet")  # type: ignore[untyped-decorator]
def import_mxnet(
    symbol: Annotated[Path, argument("SYMBOL.json", "The network: MXNet's symbol.json.")],
    params: Annotated[Path, argument("MODEL.params", "Its parameters.")],
    output: Annotated[Path, option("FILE.onnx", "Write the model to this file.", "--output", "-o")],
    shape: Annotated[
        list[str] | None,
        option(
            "NAME=CxHxW",
            "Dims of an input without the batch; default: those in SYMBOL.json, else a free height and width. May be repeated.",
        ),
    ] = None,
    allow_extra: Annotated[
        bool, choice("Leave out arrays that the network has no parameter for.", "--allow-extra")
    ] = False,
) -> Result[Imported]:
    """Convert a network of MXNet to ONNX. MXNet itself is not needed.

    The batch is free. An operator that is not supported ends the command with the name of its node. Name the input's dims
    where they are fixed: engines are faster then, and every parameter is checked.

    Example: pytrt import mxnet model-symbol.json model-0000.params --shape data=3x112x112 -o face.onnx
    """
    check_target(output)
    shapes = option_values.read_pairs(shape, "--shape", "NAME=CxHxW") or {}
    model = from_mxnet(
        symbol, params, shapes={name: _sizes(name, text) for name, text in shapes.items()}, allow_extra=allow_extra
    )
    write_onnx(model, output, external_data=False)
    facts = model_facts(model, str(output))
    imported = Imported(str(output), facts.nodes, facts.parameters, facts.tensors, f"pytrt inspect {output}")
    return Result(imported, _print)


def _sizes(name: str, text: str) -> Sequence[int]:
    parts = text.replace(",", "x").split("x")
    if not all(part.strip().isascii() and part.strip().isdigit() and len(part) < 12 for part in parts):
        raise UsageError(
            f"--shape {name}={text}: expected whole numbers with x between them.\nDo: --shape {name}=3x112x112"
        )
    return [int(part) for part in parts]


def _print(imported: Imported) -> None:
    print(f"{imported.file}: {imported.nodes} nodes, {imported.parameters:,} parameters")
    for tensor in imported.tensors:
        print(f"  {tensor.side:<6} {tensor.name} {' x '.join(str(size or '?') for size in tensor.dims or ())}")
    print(f"Do: {imported.next}")
