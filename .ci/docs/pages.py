"""Pages of the site that are made of the package itself: the public API, the commands, the changelog."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from public_names import MODULES

from darknet2caffe.cli import app as darknet2caffe
from pytrtplugins import cli
from pytrtplugins.cli.shared.keys import keys, result_types

ROOT = Path(__file__).parents[2]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those of docs/."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    made = (
        ("reference/api.md", _api()),
        ("reference/cli.md", _cli()),
        ("reference/json.md", _json()),
        ("changelog.md", changes),
    )
    for path, text in made:
        files.append(File.generated(config, path, content=text))
    worker = Path(__file__).with_name("iframe-worker.js").read_text(encoding="utf-8")
    files.append(File.generated(config, "assets/iframe-worker.js", content=worker))
    return files


def _api() -> str:
    """Each public name once, where it is imported from."""
    lines = [
        "# API",
        "",
        "What `import pytrtplugins` gives, then the public modules. [Public names](public_names.md) says how stable each name is.",
        "",
    ]
    told: set[Any] = set()
    for module in ("", *MODULES):
        full = f"pytrtplugins.{module}".rstrip(".")
        found = importlib.import_module(full)
        lines += [f"## {full}", ""]
        for name in found.__all__:
            value = getattr(found, name)
            if callable(value) and value not in told:
                told.add(value)
                lines += [f"::: {_place(value, full, name)}", "    options: {heading_level: 3}", ""]
    return "\n".join(lines)


def _place(value: Any, module: str, name: str) -> str:
    """Where a name is defined, which mkdocstrings reads: names of the package are found when they are first used."""
    own = getattr(value, "__module__", "") or ""
    return f"{own}.{getattr(value, '__qualname__', name)}" if own.startswith("pytrtplugins") else f"{module}.{name}"


def _cli() -> str:
    """Each command with its help, as ``--help`` prints it."""
    lines = ["# Commands", "", "As each command's `--help` says. `pytrt --help` lists them.", ""]
    for name, command in (("pytrt", cli.command()), ("darknet2caffe", typer.main.get_command(darknet2caffe))):
        lines += _command(command, name, 2)
    return "\n".join(lines)


def _json() -> str:
    """The keys of each command's result."""
    head = "What `--json` prints: `result` has these keys. [In scripts](../how-to/shell.md) has those around it."
    lines = ["# JSON of the commands", "", head, ""]
    for name, command in _leaves(cli.command(), "pytrt").items():
        lines += [f"## {name}", ""]
        types = result_types(command)
        for cls in types:
            if len(types) > 1:
                lines += [(inspect.getdoc(cls) or "").partition("\n")[0], ""]
            lines += ["| key | type | meaning |", "|---|---|---|"]
            lines += [f"| `{key.path}` | {key.type} | {key.meaning} |".replace("``", "`") for key in keys(cls)]
            lines.append("")
    return "\n".join(lines)


def _leaves(command: click.Command, name: str) -> dict[str, click.Command]:
    inner = getattr(command, "commands", None)
    if inner is None:
        return {name: command}
    return {key: leaf for each in inner.values() for key, leaf in _leaves(each, f"{name} {each.name}").items()}


def _command(command: click.Command, name: str, level: int, parent: click.Context | None = None) -> list[str]:
    context = click.Context(command, info_name=name.split()[-1], parent=parent)
    lines = [f"{'#' * level} {name}", "", "```text", _help(command, context), "```", ""]
    for each in getattr(command, "commands", {}).values():  # of a group; typer has classes of its own
        if not each.hidden:
            lines += _command(each, f"{name} {each.name}", min(level + 1, 4), context)
    return lines


def _help(command: click.Command, context: click.Context) -> str:
    """Usage, help, arguments and options without colours and frames."""
    formatter = context.make_formatter()
    formatter.width = 100
    click.Command.format_usage(command, context, formatter)
    click.Command.format_help_text(command, context, formatter)
    rows = [row for parameter in command.get_params(context) if (row := parameter.get_help_record(context))]
    if rows:
        with formatter.section("Arguments and options"):
            formatter.write_dl(rows)
    return re.sub(r"\[/?(bold|dim)\]", "", formatter.getvalue()).rstrip()
