"""What the server can be asked, for programs (OpenAPI) and on a page."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from ..service import Service

__all__ = ["document", "page"]

_IMAGE = {"image/*": {"schema": {"type": "string", "format": "binary"}}}
_FORM = {
    "multipart/form-data": {
        "schema": {
            "type": "object",
            "properties": {"image": {"type": "array", "items": {"type": "string", "format": "binary"}}},
        }
    }
}
_OTHERS = (
    ("get", "/v2", "Name and version of the server"),
    ("get", "/v2/health/live", "Whether the server runs"),
    ("get", "/v2/health/ready", "Whether all models take requests"),
    ("get", "/v2/models/stats", "Statistics of all models"),
    ("post", "/v2/repository/index", "List the models"),
    ("get", "/metrics", "Metrics for Prometheus"),
)
_OF_A_MODEL = (
    ("get", "/v2/models/{name}", "Inputs and outputs"),
    ("get", "/v2/models/{name}/ready", "Whether it takes requests"),
    ("get", "/v2/models/{name}/config", "Configuration, as Triton says it"),
    ("get", "/v2/models/{name}/stats", "Statistics"),
    ("post", "/v2/models/{name}/infer", "Infer, with tensors as JSON or bytes"),
    ("post", "/v1/models/{name}:predict", "Infer from what the model's preprocess takes"),
    ("post", "/v2/repository/models/{name}/load", "Load it anew"),
    ("post", "/v2/repository/models/{name}/unload", "Unload it"),
)


def document(services: Iterable[Service], version: str) -> dict[str, Any]:
    """The addresses of this server in OpenAPI's form."""
    services = list(services)
    paths: dict[str, Any] = {}
    if any(service.ready and service.signature.detects for service in services):
        paths["/v1/detect"] = {"post": _detect([service.name for service in services])}
    for service in services:
        for method, path, about in _OF_A_MODEL:
            paths.setdefault(path.format(name=service.name), {})[method] = _operation(about)
    for method, path, about in _OTHERS:
        paths[path] = {method: _operation(about)}
    return {"openapi": "3.1.0", "info": {"title": "pytrtplugins", "version": version}, "paths": paths}


def page(found: dict[str, Any]) -> str:
    """A page of the same, without scripts."""
    rows = "".join(
        f"<tr><td>{method.upper()}</td><td><code>{html.escape(path)}</code></td><td>{html.escape(each['summary'])}</td></tr>"
        for path, methods in found["paths"].items()
        for method, each in methods.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>pytrtplugins</title><style>body{{font:16px sans-serif;margin:2em}}td{{padding:.2em 1em .2em 0}}</style>"
        f"<h1>pytrtplugins {html.escape(found['info']['version'])}</h1><table>{rows}</table>"
        '<p><a href="/openapi.json">openapi.json</a></p></html>'
    )


def _operation(about: str) -> dict[str, Any]:
    return {"summary": about, "responses": {"200": {"description": "OK"}}}


def _detect(names: list[str]) -> dict[str, Any]:
    return {
        "summary": "Find objects on an image",
        "requestBody": {"required": True, "content": {**_IMAGE, **_FORM}},
        "parameters": [
            {"name": "format", "in": "query", "schema": {"enum": ["json", "image"], "default": "json"}},
            {"name": "model", "in": "query", "schema": {"enum": names}},
        ],
        "responses": {
            "200": {
                "description": "Boxes, or the image with them drawn; of several images a list",
                "content": {"application/json": {}, "image/jpeg": {}},
            }
        },
    }
