"""Build Argo's resources with hera's models, which follow Argo's API."""

from __future__ import annotations

from typing import Any

from ....utils.optional import require

__all__ = ["API_VERSION", "make", "make_event", "to_plain"]

API_VERSION = "argoproj.io/v1alpha1"
_FIRST = ("apiVersion", "kind", "metadata", "name", "generateName", "schedules", "entrypoint", "onExit", "template", "depends", "when",
          "arguments", "inputs", "path", "outputs", "from", "image", "command", "args")  # fmt: skip
"""Keys that come before others."""


def make(kind: str, /, **values: Any) -> Any:
    """A part of a resource: one of hera's models, by its name, with the fields that are not None.

    Raises:
        TypeError: it has no such field; hera would leave it out without a word.
    """
    return _make("hera.workflows.models", kind, values)


def make_event(kind: str, /, **values: Any) -> Any:
    """Build a model of Argo Events."""
    return _make("hera.events.models", kind, values)


def _make(module: str, kind: str, values: dict[str, Any]) -> Any:
    models = require(module, extra="pipeline", package="hera", feature="pytrt pipeline export argo")
    model = getattr(models, kind)
    if unknown := set(values) - set(model.model_fields):
        raise TypeError(f"{kind} has no {', '.join(sorted(unknown))}")
    return model(**{name: value for name, value in values.items() if value is not None})


def to_plain(resource: Any) -> dict[str, Any]:
    """A resource as values for YAML, with the API's names in reading order, without unset fields."""
    plain: dict[str, Any] = _in_reading_order(resource.model_dump(by_alias=True, exclude_none=True))
    return plain


def _in_reading_order(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_reading_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = sorted(value, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return {name: _in_reading_order(value[name]) for name in names}
