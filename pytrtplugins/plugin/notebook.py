"""A plugin's display in notebooks."""

from __future__ import annotations

import inspect
from typing import Any

from ..utils.notebook import object_html
from .fields import MISSING, format_value

__all__ = ["plugin_view"]


def plugin_view(plugin: Any) -> str:
    """HTML of a plugin class with its fields and defaults, or of an instance with its values."""
    cls: Any
    cls, values = (plugin, None) if isinstance(plugin, type) else (type(plugin), plugin.fields())
    if "_key" not in vars(cls):
        return object_html(f"{cls.__name__}: a class without @plugin")
    rows = []
    for spec in cls.field_specs():
        value = spec.default if values is None else values[spec.name]
        rows.append((spec.name, spec.type_name, "must be given" if value is MISSING else format_value(value)))
    doc = (inspect.getdoc(cls) or "").partition("\n\n")[0]
    columns = ("field", "type", "default" if values is None else "value")
    title = f"plugin {cls.plugin_key()}" + ("" if values is None else ", an instance")
    return object_html(title, columns, rows, [doc] if doc else [])
