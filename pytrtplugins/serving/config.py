"""Read models, limits and scale of a server from TOML: ``[models.NAME]``, ``[limits]``, ``[scale]``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..utils.declared import field_types, mismatch, nearest
from ..utils.file_with_lines import Names
from ..utils.text_formats import shorten
from ..utils.toml_file import TomlFile
from .batching.replica import names_code
from .model.registered import is_registered
from .model.spec import Limits, ModelSpec
from .run import read_target
from .scale import Scale

__all__ = ["TABLES", "choose_models", "read_limits", "read_models", "read_scale"]

TABLES = ("models", "limits", "scale")
"""Tables of a file that are not options of commands."""

_VERSIONS = "versions"
_OWN = ("target", "version", "share", "shadow")
"""What a version does not take over from the table of its model."""


def read_models(file: TomlFile, defaults: Mapping[str, Any]) -> list[ModelSpec]:
    """The models that a file has: tables ``[models.NAME]``, and ``[[models.NAME.versions]]`` for several versions of one.

    The keys are those of `ModelSpec`. A table with a ``target`` is a version; ``versions`` take over all else that it says. Relative
    paths are relative to the file's folder.

    Args:
        file: That was read.
        defaults: Values of keys that a model does not have.

    Raises:
        FormatError: a key is unknown, or a value of another type or outside of its limits; ``.path`` and ``.line`` say where.
    """
    models = _table(file, ("models",))
    return [spec for name in models for spec in _versions(file, name, defaults)]


def choose_models(
    words: Sequence[str] | None, file: TomlFile | None, defaults: Mapping[str, Any], again: str
) -> list[ModelSpec]:
    """The models named on a command line, such as ``name=animals.engine``; if it names none, those of a file.

    Args:
        words: Of the command line.
        file: That was read, if there is one.
        defaults: Values of keys that a model does not have.
        again: What to type where there is no model, for the error.

    Raises:
        UsageError: there is no model, or the command line names one that cannot stand in an address.
    """
    if words:
        return [ModelSpec(name, target, **defaults) for name, target in map(read_target, words)]
    specs = [] if file is None else read_models(file, defaults)
    if not specs:
        raise UsageError(f"no model: name one, or a file with [models.NAME].\nDo: {again}")
    return specs


def read_limits(file: TomlFile, overrides: Mapping[str, Any]) -> Limits:
    """Read the table ``[limits]`` with the keys of `Limits`, except those in ``overrides``.

    Raises:
        FormatError: a key is unknown, or a value of another type or outside of its limits; ``.path`` and ``.line`` say where.
    """
    keys = [item.name for item in fields(Limits) if item.name not in overrides]
    return Limits(**overrides, **_check_values(file, ("limits",), _table(file, ("limits",)), Limits, keys))


def read_scale(file: TomlFile | None, overrides: Mapping[str, Any]) -> Scale:
    """Read the table ``[scale]`` with the keys of `Scale`; ``overrides`` come first.

    Args:
        file: That was read; None: there is none.
        overrides: Values that go before those of the file.

    Raises:
        FormatError: a key is unknown, or a value of another type or outside of its limits; ``.path`` and ``.line`` say where.
        UsageError: they contradict each other.
    """
    names = ("scale",)
    keys = [item.name for item in fields(Scale)]
    return Scale(**{**(_check_values(file, names, _table(file, names), Scale, keys) if file else {}), **overrides})


def _versions(file: TomlFile, name: str, defaults: Mapping[str, Any]) -> Iterator[ModelSpec]:
    names: Names = ("models", name)
    table = _table(file, names)
    versions = table.get(_VERSIONS, [])
    if not isinstance(versions, list) or not all(isinstance(item, dict) for item in versions):
        text = f"models.{name}.{_VERSIONS}: expected tables, [[models.{name}.{_VERSIONS}]], found {shorten(versions)}"
        raise file.error((*names, _VERSIONS), text)
    keys = [item.name for item in fields(ModelSpec) if item.name != "name"]
    own = {key: value for key, value in table.items() if key != _VERSIONS}
    common = {**defaults, **_check_values(file, names, own, ModelSpec, [*keys, _VERSIONS])}
    if "target" in table or not versions:
        yield _spec(file, names, {**common, "name": name})
    inherited = {key: value for key, value in common.items() if key not in _OWN}
    for number, version in enumerate(versions):
        place = (*names, _VERSIONS, number)
        yield _spec(file, place, {**inherited, "name": name, **_check_values(file, place, version, ModelSpec, keys)})


def _spec(file: TomlFile, names: Names, values: dict[str, Any]) -> ModelSpec:
    """The version that a table describes."""
    if "target" not in values:
        raise file.error(names, f"{_dotted(names)}: target is missing: a file, or module:Class")
    try:
        folder = file.path.parent
        registry = {"registry": str(folder / values["registry"])} if values.get("registry") else {}
        return ModelSpec(**{**values, **registry, "target": _target(values["target"], folder)})
    except UsageError as error:
        raise file.error(names, f"{_dotted(names)}: {str(error).removeprefix('ModelSpec.')}") from None


def _target(text: str, folder: Path) -> str:
    """A target with its path, if it has one, relative to the file."""
    if is_registered(text):
        return text
    if not names_code(text):
        return str(folder / text)
    module, _, name = text.rpartition(":")
    return f"{folder / module}:{name}" if module.endswith(".py") else text


def _table(file: TomlFile, names: Names) -> dict[str, Any]:
    table: Any = file.data
    for name in names:
        table = table.get(name, {})
    if not isinstance(table, dict):
        raise file.error(names, f"{_dotted(names)}: expected a table, [{_dotted(names)}], found {shorten(table)}")
    return table


def _check_values(file: TomlFile, names: Names, table: dict[str, Any], cls: type, known: list[str]) -> dict[str, Any]:
    """The values of a table, checked against the fields of a dataclass."""
    types = field_types(cls)
    for key, value in table.items():
        if key not in known:
            raise file.error((*names, key), f"{_dotted(names)} has no key {key!r}.{nearest(key, known)}")
        if (expected := mismatch(value, types[key])) is not None:
            text = f"{_dotted(names)}, {key}: expected {expected}, found {shorten(value)}"
            raise file.error((*names, key), text)
    return table


def _dotted(names: Names) -> str:
    return ".".join(str(name) for name in names if not isinstance(name, int))
