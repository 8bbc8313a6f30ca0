"""The commands that report what works on this machine: ``pytrt devices`` and ``pytrt doctor``."""

from __future__ import annotations

from typing import Annotated

from .. import engines
from ..doctor import Report, examine
from .app import app
from .facts import Devices
from .shared import tables
from .shared.option import choice
from .shared.results import Result

__all__ = ["command", "devices"]


@app.command()  # type: ignore[untyped-decorator]
def devices() -> Result[Devices]:
    """List the engines: which work on this machine, and why the others do not.

    Examples: pytrt devices

    pytrt devices --json
    """
    return Result(Devices(engines.auto_engine(), tuple(engines.availability())), tables.print_devices)


@app.command("doctor")  # type: ignore[untyped-decorator]
def command(
    run: Annotated[bool, choice("Run a small network on each engine, in a separate process.")] = True,
) -> Result[Report]:
    """Show what is installed, what each engine lacks, and whether it works; exit code 1 if one does not.

    Examples: pytrt doctor

    pytrt doctor --no-run --json
    """
    report = examine(run)
    return Result(report, tables.print_report, report.healthy)
