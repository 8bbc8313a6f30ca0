"""Registry of plugin classes by (namespace, name, version)."""

from __future__ import annotations

import difflib

from ..errors import RegistryError
from ..utils.forks import ForkLock
from .base import Plugin, PluginKey, hooks

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
        registered_class = _classes.get(key)
        if registered_class is not None and (registered_class.__module__, registered_class.__qualname__) != (
            cls.__module__,
            cls.__qualname__,
        ):
            raise RegistryError(
                f"plugin {key} cannot be {_class_location(cls)}: the key belongs to {_class_location(registered_class)}.\n"
                f'Do: give one of them another version, @plugin(namespace="{key.namespace}", version="2"), or another namespace.',
                key=key,
                taken_by=registered_class,
            )
        _classes[key] = cls


def lookup(namespace: str, name: str, version: str | None = None) -> type[Plugin]:
    """The class of a key; without a version, the only one registered.

    Raises:
        RegistryError: nobody registered it, or the version must be named. The message has near matches and the import that is missing.
    """
    if namespace in _SHIPPED:
        __import__(_SHIPPED[namespace])
    matches = {key: cls for key, cls in _snapshot().items() if key[:2] == (namespace, name)}
    if version is not None:
        matches = {key: cls for key, cls in matches.items() if key.version == version}
    if len(matches) == 1:
        return next(iter(matches.values()))
    key_text = f"{namespace}::{name}" + ("" if version is None else f" version {version}")
    if matches:
        versions = ", ".join(sorted(key.version for key in matches))
        raise RegistryError(
            f"plugin {key_text} is registered in several versions: {versions}.\nDo: name one of them.", wanted=key_text
        )
    raise RegistryError(f"plugin {key_text} is not registered.\n{_similar_names(namespace, name)}", wanted=key_text)


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


def _similar_names(namespace: str, name: str) -> str:
    """A hint with similar registered names, for messages."""
    classes = _snapshot()
    names = {f"{key.namespace}::{key.name}": key for key in classes}
    close = difflib.get_close_matches(f"{namespace}::{name}", names, n=3, cutoff=0.6)
    same_name = [text for text, key in names.items() if key.name.lower() == name.lower() and text not in close]
    versions = [str(key) for key in classes if key[:2] == (namespace, name)]
    hints = versions or close + same_name
    candidates = f"Near: {', '.join(hints)}.\n" if hints else f"Registered: {', '.join(sorted(names)) or 'none'}.\n"
    return f"{candidates}Do: import the module that defines it (from a shell: --plugins yourmodule) before the model is read."


def _class_location(cls: type) -> str:
    """Module and name of a class, for messages."""
    return f"{cls.__module__}.{cls.__qualname__}"


hooks.register, hooks.lookup = register, lookup
