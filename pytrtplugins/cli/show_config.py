"""The command ``pytrt config``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .app import app
from .shared import tables
from .shared.config import Defaults, find_config, open_config, read_config
from .shared.option import option, typer
from .shared.results import Result

__all__ = ["show_config"]


@app.command("config")  # type: ignore[untyped-decorator]
def show_config(
    context: typer.Context,  # type: ignore[name-defined]
    file: Annotated[Path | None, option("FILE", "File with defaults, instead of the default one.", "--config")] = None,
) -> Result[Defaults]:
    """Show the defaults of options that are in force, and the file that they come from.

    The file is pytrt.toml in the working directory or the nearest folder above it, or the table [tool.pytrt] of a pyproject.toml. It has
    a table for each command, whose keys are the long names of options.

    Examples: pytrt config

    pytrt config --config other.toml
    """
    path = file or find_config(Path.cwd())
    config = Defaults("", ()) if path is None else read_config(open_config(path), context.find_root().command)
    return Result(config, tables.print_defaults)
