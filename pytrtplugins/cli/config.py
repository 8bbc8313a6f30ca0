"""Defaults of options, from pytrt.toml: a table for each command, whose keys are the options' long names."""

from __future__ import annotations

import difflib
import logging
import os
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import FormatError
from ..utils.files import read_regular
from ..utils.optional import require
from ..utils.text_formats import shorten
from .options import limits_of
from .results import option_name

__all__ = ["Default", "Defaults", "defaults_for", "find_config", "read_config"]

log = logging.getLogger(__name__)

_FILE, _PROJECT = "pytrt.toml", "pyproject.toml"
_TABLE = ("tool", "pytrt")  # in a pyproject.toml
_MAX_BYTES = 1 << 20
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path as text"}


@dataclass(frozen=True)
class Default:
    """The default of an option, as a file has it.

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
    """What a file says.

    Attributes:
        file: The file; empty where there is none.
        defaults: The defaults in it.
    """

    file: str
    defaults: tuple[Default, ...]


def find_config(folder: Path) -> Path | None:
    """The nearest pytrt.toml, or pyproject.toml with a table tool.pytrt, in a folder or above it; None where there is none.

    One that belongs to somebody else, who is neither root nor the owner of the folder, is left out with a warning: it could
    name a module to import.
    """
    folder = folder.absolute()
    for place in (folder, *folder.parents):
        for path in (place / _FILE, place / _PROJECT):
            if (
                path.is_file()
                and (path.name == _FILE or f"[{'.'.join(_TABLE)}" in _text(path))
                and _is_trusted(path, folder)
            ):
                return path
    return None


def read_config(path: Path, root: Any) -> Defaults:
    """Read a file of defaults, and compare it with the options of the commands.

    Raises:
        FormatError: it is not TOML, or has an unknown command or option, or a value of another type; ``.path`` and ``.line`` say where.
        OSError: it cannot be read.
    """
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    toml = require(name, extra="cli", feature=_FILE)
    text = _text(path)
    try:
        data = toml.loads(text)
    except (toml.TOMLDecodeError, RecursionError) as error:
        raise FormatError(f"{path}: {error}.", path=path) from error
    prefix = _TABLE if path.name == _PROJECT else ()
    for part in prefix:
        data = data.get(part, {})
    return Defaults(str(path), tuple(_read(data, root, (), _Place(path, _lines(text), prefix))))


def defaults_for(context: Any, found: Defaults) -> dict[str, Any]:
    """The defaults of one command, as click takes them; relative paths are relative to the file's folder."""
    command, folder = context.command_path.partition(" ")[2], Path(found.file).parent
    names = {option_name(param): param.name for param in context.command.params}
    hints = typing.get_type_hints(context.command.callback)
    made = {}
    for default in found.defaults:
        if default.command == command:
            name = names[default.option]
            made[name] = _given(default.value, _kind(hints[name])[0], folder)
    return made


# -- inside --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """Where the values of a file stand."""

    path: Path
    lines: Mapping[tuple[str, ...], int]
    prefix: tuple[str, ...]

    def line(self, names: tuple[str, ...]) -> int:
        return self.lines.get((*self.prefix, *names), 0)

    def error(self, names: tuple[str, ...], problem: str) -> FormatError:
        line = self.line(names)
        where = f"{self.path}, line {line}" if line else f"{self.path}"
        return FormatError(f"{where}: {problem}", path=self.path, line=line or None)


def _read(data: Any, command: Any, words: tuple[str, ...], place: _Place) -> Iterator[Default]:
    """The defaults in the table of a command, or of a group of commands."""
    name = " ".join(("pytrt", *words))
    if not isinstance(data, dict):
        raise place.error(words, f"{name}: expected a table, [{'.'.join(words)}], found {shorten(data)}.")
    inner = getattr(command, "commands", None)
    if inner is not None:
        for key, value in data.items():
            if key not in inner:
                raise place.error((*words, key), f"{name} has no command {key!r}.{_nearest(key, inner)}")
            yield from _read(value, inner[key], (*words, key), place)
        return
    options = {option_name(each): each for each in command.params if each.opts[0].startswith("-") and each.expose_value}
    hints = typing.get_type_hints(command.callback, include_extras=True)
    for key, value in data.items():
        if key not in options:
            raise place.error((*words, key), f"{name} has no option --{key}.{_nearest(key, options)}")
        if (expected := _mismatch(value, hints[options[key].name])) is not None:
            raise place.error((*words, key), f"{name}, {key}: expected {expected}, found {shorten(value)}.")
        yield Default(" ".join(words), key, value, place.line((*words, key)))


def _mismatch(value: Any, hint: Any) -> str | None:
    """What an option expects, where the value is something else."""
    kind, several = _kind(hint)
    if several:
        if not isinstance(value, list):
            return "a list"
        return next((f"a list of {wrong}" for item in value if (wrong := _wrong(item, kind, hint))), None)
    return _wrong(value, kind, hint)


def _wrong(value: Any, kind: Any, hint: Any) -> str | None:
    if typing.get_origin(kind) is Literal:
        return None if value in typing.get_args(kind) else " or ".join(map(repr, typing.get_args(kind)))
    if type(value) is not (str if kind is Path else kind) and not (kind is float and type(value) is int):
        return _WORDS[kind]
    for option in getattr(hint, "__metadata__", ()):
        if (limits := limits_of(option)) is not None:
            try:
                limits.read(str(value))
            except ValueError:
                return str(limits)
    return None


def _kind(hint: Any) -> tuple[Any, bool]:
    """The type of an option's value, and whether it takes several."""
    hint = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(each for each in typing.get_args(hint) if each is not type(None))
    return (typing.get_args(hint)[0], True) if typing.get_origin(hint) is list else (hint, False)


def _given(value: Any, kind: Any, folder: Path) -> Any:
    """A value as a command line has it."""
    if isinstance(value, list):
        return [_given(item, kind, folder) for item in value]
    if kind is Path:
        return str(folder / value)
    return value if isinstance(value, bool) else str(value)


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"\nDo: write {close[0]}" if close else f" It has: {', '.join(known)}."


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """The lines of tables and keys, by their names."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = _names(match[1])
            found.setdefault(table, number)
        elif match := re.match(r"""\s*([\w\s."'-]+?)\s*=""", line):
            found.setdefault((*table, *_names(match[1])), number)
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip(" \t\"'") for part in text.split("."))


def _text(path: Path) -> str:
    try:
        return read_regular(path, _MAX_BYTES).decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8 at byte {error.start}.", path=path) from error


def _owner(path: Path) -> int:
    return path.stat().st_uid


def _is_trusted(path: Path, folder: Path) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    trusted = _owner(path) in (0, os.geteuid(), _owner(folder))
    if not trusted:
        log.warning("%s belongs to somebody else, and is left out. To use it: --config %s", path, path)
    return trusted
