"""Options that every command of ``pytrt`` takes: how much it says."""

from __future__ import annotations

import contextlib
import os
from typing import Annotated, Any

from ..utils.optional import require
from ..utils.terminal import be_quiet, be_verbose

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["add_options"]


def add_options(command: Any) -> Any:
    """Give -q and -v to each command of a group, and of groups within it; gives the group back."""
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    params = require("typer.main", extra="cli", package="typer").get_command(app).params
    waiting = [command]
    while waiting:
        each = waiting.pop()
        if inner := getattr(each, "commands", None):
            waiting += inner.values()
        else:
            each.params += params
    return command


def _be_quiet(context: typer.Context, asked: bool) -> bool:  # type: ignore[name-defined]  # typer goes by the type
    if asked:
        be_quiet()
        nowhere = context.with_resource(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  the context closes it
        context.with_resource(contextlib.redirect_stdout(nowhere))
    return asked


def _be_verbose(asked: bool) -> bool:
    if asked:
        be_verbose()
    return asked


def _options(
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", callback=_be_quiet, expose_value=False, help="Print errors only."),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            callback=_be_verbose,
            expose_value=False,
            help="Show what is decided on the way, and at an error all that the engine's library reported.",
        ),
    ] = False,
) -> None:
    """What the options are made of."""
