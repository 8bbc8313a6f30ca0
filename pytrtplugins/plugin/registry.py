"""(namespace, name, version) → plugin class."""

from __future__ import annotations

import difflib

from ..errors import RegistryError
from ..utils.forks import ForkLock
from .base import Plugin, PluginKey, above

__all__ = ["PluginKey", "is_registered", "lookup", "register", "registered"]


_classes: dict[PluginKey, type[Plugin]] = {}
_lock = ForkLock()
_SHIPPED = {"darknet": "pytrtplugins.layers"}


def register(cls: type[Plugin]) -> None:
    """Make a plugin class known under its key; `plugin` does it for you.

    Defining the same class again (a module reloaded, a notebook cell run twice) replaces it.

    Raises:
        RegistryError: another class has the key.
    """
    key = cls.plugin_key()
    with _lock:
        taken = _classes.get(key)
        if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
            raise RegistryError(
                f"plugin {key} cannot be {_where(cls)}: the key belongs to {_where(taken)}.\n"
                f'Do: give one of them another version, @plugin(namespace="{key.namespace}", version="2"), or another namespace.',
                key=key,
                taken_by=taken,
            )
        _classes[key] = cls


def lookup(namespace: str, name: str, version: str | None = None) -> type[Plugin]:
    """The class of a key; without a version, the only one registered.

    Raises:
        RegistryError: nobody registered it, or the version must be named. The message has near matches and the import that is missing.
    """
    if namespace in _SHIPPED:
        __import__(_SHIPPED[namespace])
    found = {key: cls for key, cls in _snapshot().items() if key[:2] == (namespace, name)}
    if version is not None:
        found = {key: cls for key, cls in found.items() if key.version == version}
    if len(found) == 1:
        return next(iter(found.values()))
    wanted = f"{namespace}::{name}" + ("" if version is None else f" version {version}")
    if found:
        versions = ", ".join(sorted(key.version for key in found))
        raise RegistryError(
            f"plugin {wanted} is registered in several versions: {versions}.\nDo: name one of them.", wanted=wanted
        )
    raise RegistryError(f"plugin {wanted} is not registered.\n{_near(namespace, name)}", wanted=wanted)


def is_registered(namespace: str, name: str) -> bool:
    """Whether a plugin of this name is registered, in any version."""
    with _lock:
        return any(key.name == name and key.namespace == namespace for key in _classes)


def registered() -> tuple[PluginKey, ...]:
    """The keys of all registered plugins, sorted."""
    return tuple(sorted(_snapshot()))


def _snapshot() -> dict[PluginKey, type[Plugin]]:
    """The classes as they are now: other threads may register more while the caller looks through them."""
    with _lock:
        return dict(_classes)


def _near(namespace: str, name: str) -> str:
    classes = _snapshot()
    names = {f"{key.namespace}::{key.name}": key for key in classes}
    close = difflib.get_close_matches(f"{namespace}::{name}", names, n=3, cutoff=0.6)
    same_name = [text for text, key in names.items() if key.name.lower() == name.lower() and text not in close]
    versions = [str(key) for key in classes if key[:2] == (namespace, name)]
    hints = versions or close + same_name
    known = f"Near: {', '.join(hints)}.\n" if hints else f"Registered: {', '.join(sorted(names)) or 'none'}.\n"
    return (
        f"{known}Do: import the module that defines it (from a shell: --plugins yourmodule) before the model is read."
    )


def _where(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


above.register, above.lookup = register, lookup
