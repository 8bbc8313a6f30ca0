"""Defaults that programs of users rely on, of functions, methods and fields: ``python -m tests.public_defaults`` lists them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytrtplugins.engines.registry import _CLASSES, engine_class

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".txt")
_PLAIN = (bool, int, float, str, tuple, type(None))


def public_defaults() -> list[str]:
    """A line for each function, method and class with defaults of plain values, and each plain attribute of a class."""
    modules = runpy.run_path(str(ROOT / ".ci/docs/public_names.py"))["MODULES"]
    lines = set[str]()
    for module in map(importlib.import_module, ["pytrtplugins", *(f"pytrtplugins.{name}" for name in modules)]):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                lines.update(_of_function(f"{value.__module__}.{name}", value))
            elif inspect.isclass(value) and value.__module__.startswith("pytrtplugins"):
                lines.update(_of_class(value))
    for name in _CLASSES:
        lines.update(_of_class(engine_class(name)))
    return sorted(lines)


def _of_class(cls: type) -> Iterator[str]:
    where = f"{cls.__module__}.{cls.__qualname__}"
    for name, value in vars(cls).items():
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function) and (not name.startswith("_") or name == "__init__"):
            yield from _of_function(f"{where}.{name}", function)
        elif not name.startswith("_") and type(value) in _PLAIN and not dataclasses.is_dataclass(cls):
            yield f"{where}.{name} = {_text(value)}"


def _of_function(where: str, function: Any) -> Iterator[str]:
    parameters = inspect.signature(function).parameters.values()
    defaults = [f"{each.name}={_text(each.default)}" for each in parameters if type(each.default) in _PLAIN]
    if defaults:
        yield f"{where}({', '.join(defaults)})"


def _text(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else repr(value)


def check_listed(prefix: str = "pytrtplugins") -> None:
    """Require that the defaults in modules whose names begin so are those of the list."""
    found, listed = public_defaults(), LIST.read_text().splitlines()
    assert [line for line in found if line.startswith(prefix)] == [
        line for line in listed if line.startswith(prefix)
    ], "Do: python -m tests.public_defaults, and say in CHANGELOG.md what users' programs may notice"


if __name__ == "__main__":
    LIST.write_text("\n".join(public_defaults()) + "\n")
