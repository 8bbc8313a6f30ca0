"""Objects compared with schemas that accept unknown keys, strictly: each key must be one that the schema names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def unknown_keys(value: Any, schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """Where an object has keys that its schema (OpenAPI v3, as in a CustomResourceDefinition) does not name, or values of another type."""
    kind = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}.get(schema.get("type", ""))
    if kind is not None and not isinstance(value, kind) and not schema.get("x-kubernetes-int-or-string"):
        yield f"{place}: expected {schema['type']}, found {value!r}"
    elif isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties")
        free = schema.get("x-kubernetes-preserve-unknown-fields") or not (known or other)
        for key, item in value.items():
            if key in known:
                yield from unknown_keys(item, known[key], f"{place}.{key}")
            elif isinstance(other, dict):
                yield from unknown_keys(item, other, f"{place}.{key}")
            elif not free:
                yield f"{place}.{key}: unknown"
        yield from (f"{place}.{key}: missing" for key in schema.get("required", ()) if key not in value)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from unknown_keys(item, schema.get("items", {}), f"{place}[{number}]")
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{place}: expected one of {schema['enum']}, found {value!r}"
