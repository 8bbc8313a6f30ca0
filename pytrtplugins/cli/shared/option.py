"""Declarations of arguments and options for `Annotated`."""

from __future__ import annotations

from typing import Any

from ...utils.optional import require

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["argument", "choice", "option", "typer"]


def argument(metavar: str, help: str) -> Any:
    """An argument, which ``--help`` calls ``metavar``."""
    return typer.Argument(metavar=metavar, help=help)


def choice(help: str, *names: str) -> Any:
    """An option whose values its type lists; of type bool a flag."""
    return typer.Option(*names, help=help)


def option(metavar: str, help: str, *names: str) -> Any:
    """Declaration of an option that takes a text or a path, called ``metavar`` in ``--help``."""
    return typer.Option(*names, metavar=metavar, help=help)
