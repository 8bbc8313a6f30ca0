"""Defaults of options, from pytrt.toml: a table for each command, whose keys are the options' long names."""

from __future__ import annotations

import logging
import os
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...utils.declared import element_type, mismatch, nearest
from ...utils.text_formats import shorten
from ...utils.toml_file import TomlFile, read_text
from .number import limits_of
from .old_names import old_names, warn
from .results import option_name

__all__ = ["Default", "Defaults", "defaults_for", "find_config", "open_config", "read_config"]

log = logging.getLogger(__name__)

_FILE, _PROJECT = "pytrt.toml", "pyproject.toml"
_TABLE = ("tool", "pytrt")  # in a pyproject.toml


@dataclass(frozen=True)
class Default:
    """The default of an option in a file.

    Attributes:
        command: The command.
        option: The option's long name.
        value: The value.
        line: Where it stands; 0 where that is not known.
    """

    command: str
    option: str
    value: Any
    line: int


@dataclass(frozen=True)
class Defaults:
    """All defaults in a file.

    Attributes:
        file: The file; empty where there is none.
        defaults: The defaults in it.
    """

    file: str
    defaults: tuple[Default, ...]


def find_config(folder: Path) -> Path | None:
    """The nearest pytrt.toml, or pyproject.toml with a table tool.pytrt, in a folder or its parents; None if there is none.

    One that belongs to somebody else, who is neither root nor the owner of the folder, is left out with a warning: it could
    name a module to import.
    """
    folder = folder.absolute()
    for place in (folder, *folder.parents):
        for path in (place / _FILE, place / _PROJECT):
            if (
                path.is_file()
                and (path.name == _FILE or f"[{'.'.join(_TABLE)}" in read_text(path))
                and _is_trusted(path, folder)
            ):
                return path
    return None


def open_config(path: Path) -> TomlFile:
    """Read a file of defaults; of a pyproject.toml its table tool.pytrt.

    Raises:
        FormatError: it is not TOML.
    """
    return TomlFile.read(path, _TABLE if path.name == _PROJECT else ())


def read_config(file: TomlFile, root: Any) -> Defaults:
    """Compare a file of defaults with the options of the commands; tables of models to be served are left to `serving.config`.

    Raises:
        FormatError: it has an unknown command or option, or a value of another type; ``.path`` and ``.line`` say where.
    """
    served = _served_tables()
    data = {key: value for key, value in file.data.items() if key not in served}
    return Defaults(str(file.path), tuple(_read(data, root, (), file)))


def defaults_for(context: Any, config: Defaults) -> dict[str, Any]:
    """The defaults of one command for click; relative paths are relative to the file's folder."""
    command, folder = context.command_path.partition(" ")[2], Path(config.file).parent
    names = {option_name(param): param.name for param in context.command.params}
    hints = typing.get_type_hints(context.command.callback)
    values = {}
    for default in config.defaults:
        if default.command == command:
            name = names[default.option]
            values[name] = _as_argument(default.value, element_type(hints[name])[0], folder)
    return values


# -- inside --------------------------------------------------------------------------------------------------------------


def _read(data: Any, command: Any, words: tuple[str, ...], file: TomlFile) -> Iterator[Default]:
    """Read the table of a command, or of a group of commands."""
    name = " ".join(("pytrt", *words))
    if not isinstance(data, dict):
        raise file.error(words, f"{name}: expected a table, [{'.'.join(words)}], found {shorten(data)}.")
    inner = getattr(command, "commands", None)
    if inner is not None:
        for key, value in data.items():
            if key not in inner:
                known_commands = inner if words else (*inner, *_served_tables())
                raise file.error((*words, key), f"{name} has no command {key!r}.{nearest(key, known_commands)}")
            yield from _read(value, inner[key], (*words, key), file)
        return
    options = {
        name.lstrip("-").lower(): parameter
        for parameter in command.params
        for name in parameter.opts
        if name.startswith("--") and parameter.expose_value
    }
    hints = typing.get_type_hints(command.callback, include_extras=True)
    renamed = old_names(" ".join(words))
    for key, value in data.items():
        if key in renamed:
            warn(" ".join(words), key, renamed[key])
            options.setdefault(key, options[renamed[key]])
        if key not in options:
            raise file.error((*words, key), f"{name} has no option --{key}.{nearest(key, options)}")
        if (expected := mismatch(value, hints[options[key].name], limits_of)) is not None:
            raise file.error((*words, key), f"{name}, {key}: expected {expected}, found {shorten(value)}.")
        yield Default(" ".join(words), option_name(options[key]), value, file.line((*words, key)))


def _served_tables() -> tuple[str, ...]:
    """Names of the tables that configure served models."""
    from ...serving.config import TABLES  # which takes long to import, and most have no such file

    return TABLES


def _as_argument(value: Any, kind: Any, folder: Path) -> Any:
    """A value as it would be on a command line."""
    if isinstance(value, list):
        return [_as_argument(item, kind, folder) for item in value]
    if kind is Path:
        return str(folder / value)
    return value if isinstance(value, bool) else str(value)


def _owner(path: Path) -> int:
    return path.stat().st_uid


def _is_trusted(path: Path, folder: Path) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    trusted = _owner(path) in (0, os.geteuid(), _owner(folder))
    if not trusted:
        log.warning("%s belongs to somebody else, and is left out. To use it: --config %s", path, path)
    return trusted
