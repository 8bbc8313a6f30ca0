"""Options of every command of ``pytrt``: amount and form of the output, and the file of defaults."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

from ...utils.optional import require
from ...utils.terminal import be_quiet, be_verbose
from .config import defaults_for, find_config, open_config, read_config
from .old_names import accept_old_names
from .option import typer
from .results import current_output

__all__ = ["add_options"]


def add_options(command: Any) -> Any:
    """Add -q, -v, --json, --config and old option names to each command of a group and its subgroups; returns the group."""
    params = _params()
    waiting = [(command.name, command)]
    while waiting:
        words, subcommand = waiting.pop()
        if inner := getattr(subcommand, "commands", None):
            waiting += [(f"{words} {name}", part) for name, part in inner.items()]
        else:
            names = {name for param in subcommand.params for name in param.opts}
            subcommand.params += [param for param in params if not names & set(param.opts)]
            accept_old_names(subcommand, words)
    return command


@functools.cache
def _params() -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    return list(require("typer.main", extra="cli", package="typer").get_command(app).params)


def _set_quiet(value: bool) -> bool:
    if value:
        be_quiet()
        current_output().be_quiet()
    return value


def _read_defaults(context: typer.Context, path: Path | None) -> None:  # type: ignore[name-defined]
    """Callback of ``--config``, which click calls before other options, whether it is given or not."""
    path = path or find_config(Path.cwd())
    if path is not None:
        file = open_config(path)
        context.default_map = defaults_for(context, read_config(file, context.find_root().command))
        context.obj = file


def _set_json(context: typer.Context, value: bool) -> bool:  # type: ignore[name-defined]  # typer goes by the type
    if value:
        current_output().be_json(context)
    return value


def _set_verbose(value: bool) -> bool:
    if value:
        be_verbose()
        current_output().verbose = True
    return value


def _options(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            is_eager=True,
            callback=_read_defaults,
            expose_value=False,
            help="File with defaults of options; default: pytrt.toml here or in a folder above. `pytrt config` shows them.",
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", is_eager=True, callback=_set_quiet, expose_value=False, help="Print errors only."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            callback=_set_verbose,
            expose_value=False,
            help="Show decisions on the way, and after an error everything that the engine's library reported.",
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            is_eager=True,  # before plugins are imported, which may print
            callback=_set_json,
            expose_value=False,
            help="Print the result as JSON, and everything else to stderr.",
        ),
    ] = False,
) -> None:
    """Parameters of the shared options."""
