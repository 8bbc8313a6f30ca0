"""An engine's name → its class; which of them can be used here."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..cuda.driver import check_driver
from ..errors import UnavailableError, UsageError
from .base.engine import Engine
from .base.types import Availability

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "NEVER_AUTO",
    "auto_engine",
    "availability",
    "availability_of",
    "available_class",
    "engine_class",
    "names",
    "names_outside",
]

_log = logging.getLogger(__name__)

_CLASSES = {  # in the order in which "auto" prefers them
    "cuda": ("cuda", "CudaEngine"),
    "cpu": ("openvino", "CpuEngine"),
    "onnxruntime": ("onnxruntime", "OnnxruntimeEngine"),
    "tensorrt": ("tensorrt", "TensorrtEngine"),
    "tensorrt_rtx": ("tensorrt", "TensorrtRtxEngine"),
    "reference": ("reference", "ReferenceEngine"),
    "null": ("null", "NullEngine"),
}
_GROUP = "pytrtplugins.engines"
"""Entry points of other packages: an engine's name → its class."""
_SLOW = "reference"  # only where there is no other
NEVER_AUTO = frozenset({"null", "tensorrt", "tensorrt_rtx"})


def names() -> tuple[str, ...]:
    """Names of all engines of this package, in the order in which ``"auto"`` tries them."""
    return tuple(_CLASSES)


def names_outside() -> tuple[str, ...]:
    """Names of the engines that other packages register, by entry points of the group ``pytrtplugins.engines``."""
    return tuple(sorted(_outside()))


def engine_class(name: str) -> type[Engine]:
    """The class of an engine; its heavy library is not imported yet.

    Raises:
        UsageError: there is no such engine, or what another package registers under this name is none.
        UnavailableError: another package registers it, and cannot be imported.
    """
    if name not in _CLASSES and name in _outside():
        return _loaded(_outside()[name])
    if name not in _CLASSES:
        known = ", ".join(("auto", *_CLASSES, *names_outside()))
        raise UsageError(f"engine {name!r} is unknown; there are {known}.\nDo: pytrt devices", engine=name)
    module, cls = _CLASSES[name]
    found: type[Engine] = getattr(importlib.import_module(f".{module}", __package__), cls)
    return found


def availability() -> tuple[Availability, ...]:
    """Every engine, and whether it can be used here; behind this package's own those that others register."""
    return tuple(availability_of(name) for name in (*_CLASSES, *names_outside()))


def auto_engine(precision: str = "fp32") -> str:
    """Name of the engine that ``"auto"`` takes here for a precision."""
    return available_class("auto", precision).name


def available_class(
    name: str | type[Engine], precision: str = "fp32", never: Collection[str] = NEVER_AUTO, *, to_build: bool = False
) -> type[Engine]:
    """An engine that can be used here, or ``to_build`` files at least; for ``"auto"`` the first, if possible one with the precision."""
    if name != "auto":
        cls = engine_class(name) if isinstance(name, str) else _checked(name)
        name = cls.name
        here = cls.availability()
        if (reason := here.reason) and not (to_build and here.builds):
            why = reason.removeprefix(f"engine {name!r}").removeprefix(":").lstrip()
            it = "it " if reason == f"engine {name!r} {why}" else ""
            raise UnavailableError(f"engine {name!r} cannot be used here: {it}{why}", engine=name)
        return cls
    reasons, usable = list[str](), list[type[Engine]]()
    for candidate in (each for each in _CLASSES if each not in never):
        if reason := availability_of(candidate).reason:
            reasons.append(f"{candidate}: {reason}")
            continue
        cls = engine_class(candidate)
        if precision in cls.precisions and candidate != _SLOW:
            for text in reasons:
                _log.info("engine %s", text)
            return cls
        usable.append(cls)
        reasons.append(f"{candidate}: it has no precision {precision!r}")
    if usable:
        return usable[0]  # which refuses the precision with the alternatives
    raise UnavailableError("no engine can be used here:\n" + "\n".join(reasons))


def availability_of(name: str) -> Availability:
    """Whether an engine can be used here; where NVIDIA's driver is missing, engine ``cuda`` is not imported, which takes a while."""
    if name == "cuda":
        try:
            check_driver()
        except UnavailableError as error:
            return Availability(name, str(error), "")
    try:
        return engine_class(name).availability()
    except (UnavailableError, UsageError) as error:
        if name not in _outside():
            raise
        return Availability(name, str(error), "")


@functools.cache
def _outside() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # which takes long to import

    found = entry_points(group=_GROUP)
    return {entry.name: entry for entry in found if entry.name not in ("auto", *_CLASSES)}


def _loaded(entry: EntryPoint) -> type[Engine]:
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        raise UnavailableError(
            f"engine {entry.name!r}: the package that registers it cannot be imported: {error} ({entry.value})",
            engine=entry.name,
        ) from error
    return _checked(found, entry.name)


def _checked(given: object, name: str = "") -> type[Engine]:
    """An engine's class that is not this package's own; its name is that of its entry point, if it has one."""
    if not isinstance(given, type) or not issubclass(given, Engine):
        raise UsageError(
            f"engine {name or given!r}: expected a class that inherits pytrtplugins.engines.Engine, found {given!r}"
        )
    if name and given.name != name:
        raise UsageError(f"engine {name!r}: its class {given.__qualname__} has the name {given.name!r}", engine=name)
    return given
