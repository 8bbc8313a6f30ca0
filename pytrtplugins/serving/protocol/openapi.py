"""Description of the server's endpoints: as OpenAPI, and as an HTML page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from ..backends.service import Service
from ..model.signature import Signature
from ..model.tensors import TensorSpec
from .endpoint import Endpoint

__all__ = [
    "INTEGER",
    "TEXT",
    "describe_detect",
    "describe_infer",
    "describe_predict",
    "document",
    "list_of",
    "object_of",
    "page",
]


def object_of(**properties: Any) -> dict[str, Any]:
    """The schema of a JSON object that has these properties, and perhaps others."""
    return {"type": "object", "required": list(properties), "properties": properties}


def list_of(items: Any) -> dict[str, Any]:
    """The schema of a JSON array."""
    return {"type": "array", "items": items}


TEXT: dict[str, Any] = {"type": "string"}
"""The schema of text."""
INTEGER: dict[str, Any] = {"type": "integer"}
"""The schema of a whole number."""
_BYTES = "application/octet-stream"
_ERROR = {
    "description": "An error, in one line",
    "content": {"application/json": {"schema": object_of(error=TEXT)}},
}

_IMAGE = {"image/*": {"schema": {"type": "string", "format": "binary"}}}
_FORM = {
    "multipart/form-data": {
        "schema": {
            "type": "object",
            "properties": {"image": {"type": "array", "items": {"type": "string", "format": "binary"}}},
        }
    }
}


def document(endpoints: Iterable[Endpoint], services: Iterable[Service], version: str) -> dict[str, Any]:
    """The endpoints as an OpenAPI document: first those of the server, then those of each model."""
    services, listed = list(services), [address for address in endpoints if address.summary]
    addresses = [(address, address.path, services) for address in listed if "{model}" not in address.path]
    for service in services:
        addresses += [
            (address, address.path.format(model=service.name), [service])
            for address in listed
            if "{model}" in address.path
        ]
    paths: dict[str, Any] = {}
    for endpoint, path, concerned in addresses:
        operation = _operation(endpoint, concerned)
        if operation is not None:
            paths.setdefault(path, {})[endpoint.method.lower()] = operation
    return {"openapi": "3.1.0", "info": {"title": "pytrtplugins", "version": version}, "paths": paths}


def page(spec: dict[str, Any]) -> str:
    """The same description as a page without scripts."""
    rows = "".join(
        f"<tr><td>{method.upper()}</td><td><code>{html.escape(path)}</code></td><td>{html.escape(operation['summary'])}</td></tr>"
        for path, methods in spec["paths"].items()
        for method, operation in methods.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>pytrtplugins</title><style>body{{font:16px sans-serif;margin:2em}}td{{padding:.2em 1em .2em 0}}</style>"
        f"<h1>pytrtplugins {html.escape(spec['info']['version'])}</h1><table>{rows}</table>"
        '<p><a href="/openapi.json">openapi.json</a></p></html>'
    )


def _operation(endpoint: Endpoint, services: Sequence[Service]) -> dict[str, Any] | None:
    """The operation of an endpoint, of these models; None if it has no use with them."""
    answer: dict[str, Any] = {"description": "OK"}
    if isinstance(endpoint.answer, str):
        answer["content"] = {endpoint.answer: {}}
    elif endpoint.answer is not None:
        schema = endpoint.answer if "type" in endpoint.answer else object_of(**endpoint.answer)
        answer["content"] = {"application/json": {"schema": schema}}
    operation: dict[str, Any] = {"summary": endpoint.summary, "responses": {"200": answer, "default": _ERROR}}
    return operation if endpoint.describe is None else endpoint.describe(operation, services)


def describe_infer(operation: dict[str, Any], services: Sequence[Service]) -> dict[str, Any]:
    """Add a model's input and output tensors to an operation."""
    (service,) = services
    if service.ready:
        operation["requestBody"] = _request(service.signature)
        operation["responses"]["200"]["content"][_BYTES] = {}
    return operation


def describe_predict(operation: dict[str, Any], services: Sequence[Service]) -> dict[str, Any]:
    """Add that a body of any type is taken."""
    return {**operation, "requestBody": {"required": True, "content": {"*/*": {}}}}


def describe_detect(operation: dict[str, Any], services: Sequence[Service]) -> dict[str, Any] | None:
    """Add images and options, if a model is a detector."""
    if not any(service.ready and service.signature.detects for service in services):
        return None
    boxes = {
        "description": "Boxes, or the image with them drawn; of several images a list",
        "content": {"application/json": {}, "image/jpeg": {}},
    }
    return {
        **operation,
        "requestBody": {"required": True, "content": {**_IMAGE, **_FORM}},
        "parameters": [
            {"name": "format", "in": "query", "schema": {"enum": ["json", "image"], "default": "json"}},
            {"name": "model", "in": "query", "schema": {"enum": [service.name for service in services]}},
        ],
        "responses": {**operation["responses"], "200": boxes},
    }


def _request(signature: Signature) -> dict[str, Any]:
    """Schema of an inference request."""
    inputs = [_input(spec) for spec in signature.inputs]
    if signature.file is not None:
        inputs.append(_input(signature.file))
    outputs = {"name": {"enum": [spec.name for spec in signature.outputs]}}
    schema = object_of(inputs={"type": "array", "minItems": 1, "items": {"anyOf": inputs}})
    schema["properties"] |= {
        "id": TEXT,
        "parameters": {"type": "object"},
        "outputs": {"type": "array", "items": object_of(**outputs)},
    }
    return {"required": True, "content": {"application/json": {"schema": schema}, _BYTES: {}}}


def _input(spec: TensorSpec) -> dict[str, Any]:
    dims = [{"const": dim} if dim >= 0 else {**INTEGER, "minimum": 0} for dim in spec.dims]
    shape = {"type": "array", "prefixItems": dims, "minItems": len(dims), "maxItems": len(dims)}
    schema = object_of(name={"const": spec.name}, datatype={"const": spec.datatype}, shape=shape)
    schema["properties"] |= {"data": {"type": "array"}, "parameters": {"type": "object"}}
    return schema
