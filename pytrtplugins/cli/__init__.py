"""The command ``pytrt``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import MissingExtraError
from ..utils.optional import require
from ..utils.terminal import exit_on_error, hide_libraries_at_exit

__all__ = ["command", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with these words, or with the process's; errors of this package are printed without a traceback, with exit code 2.

    Raises:
        SystemExit: always; code 0, or 1 where a check failed, or 2 after an error.
    """
    if arguments is None:
        hide_libraries_at_exit()
    with exit_on_error(_show):
        _run(arguments)


def _run(arguments: Sequence[str] | None) -> None:
    run = command()  # first: it says which package is missing
    from .shared.results import output

    with output(restore=arguments is not None):  # the process ends with its own command
        run(args=None if arguments is None else list(arguments), prog_name="pytrt")


@functools.cache
def command() -> Any:
    """The click command with all subcommands, built once; typer would build it again for each call."""
    from .app import Commands, app

    group = require("typer.main", extra="cli", package="typer").get_command(app)
    group.commands = Commands()
    return group


def _show(kind: str, message: str) -> None:
    try:
        from .shared.tables import print_error
    except MissingExtraError:  # of rich, which is what the message may be about
        print(f"{kind}: {message}", file=sys.stderr)
    else:
        print_error(kind, message)
