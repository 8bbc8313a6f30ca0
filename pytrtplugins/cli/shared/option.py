"""An option of ``pytrt`` that takes a text or a path."""

from __future__ import annotations

from typing import Any

from ...utils.optional import require

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["option"]


def option(metavar: str, help: str, *names: str) -> Any:
    """An option whose value ``--help`` calls ``metavar``: what goes into `Annotated` beside the type."""
    return typer.Option(*names, metavar=metavar, help=help)
