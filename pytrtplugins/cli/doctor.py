"""The command ``pytrt doctor``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from ..doctor import examine
from ..utils.files import check_target
from ..utils.optional import require
from . import options, tables
from .app import app, write_json

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["command"]


@app.command("doctor")  # type: ignore[untyped-decorator]
def command(
    run: Annotated[bool, typer.Option(help="Let each engine run a small network, in a process of its own.")] = True,
    json: options.Json = None,
) -> None:
    """Show what is installed, what is missing for what, and whether each engine works; exit code 1 if one does not.

    Examples: pytrt doctor

    pytrt doctor --no-run --json doctor.json
    """
    target: Path | None = json and check_target(json)
    report = examine(run)
    tables.print_report(report)
    if target is not None:
        write_json(target, dataclasses.asdict(report))
    if not report.healthy:
        raise typer.Exit(1)
