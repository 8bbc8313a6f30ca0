"""The command ``pytrt doctor``."""

from __future__ import annotations

from typing import Annotated

from ..doctor import Report, examine
from ..utils.optional import require
from . import tables
from .app import app
from .results import Result

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["command"]


@app.command("doctor")  # type: ignore[untyped-decorator]
def command(
    run: Annotated[bool, typer.Option(help="Run a small network on each engine, in a separate process.")] = True,
) -> Result[Report]:
    """Show what is installed, what each engine lacks, and whether it works; exit code 1 if one does not.

    Examples: pytrt doctor

    pytrt doctor --no-run --json
    """
    report = examine(run)
    return Result(report, tables.print_report, report.healthy)
