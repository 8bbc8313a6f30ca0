"""What the server can be asked, for programs (OpenAPI) and on a page."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from ..backends.service import Service
from ..model.signature import Signature
from ..model.tensors import TensorSpec

__all__ = ["document", "page"]


def _object(**properties: Any) -> dict[str, Any]:
    """A JSON object that has these, and perhaps others."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT, _WHOLE = {"type": "string"}, {"type": "integer"}
_BYTES = "application/octet-stream"
_ERROR = {
    "description": "An error, in one line",
    "content": {"application/json": {"schema": _object(error=_TEXT)}},
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
_TRACE, _LOG = {"trace_level": _list(_TEXT)}, {"log_error": {"type": "boolean"}}
_OTHERS: tuple[tuple[str, str, str, Any], ...] = (
    ("get", "/v2", "Name and version of the server", {"name": _TEXT, "version": _TEXT, "extensions": _list(_TEXT)}),
    ("get", "/v2/health/live", "Whether the server runs", {"live": {"const": True}}),
    ("get", "/v2/health/ready", "Whether all models take requests", {"ready": {"const": True}}),
    ("get", "/v2/models/stats", "Statistics of all models", {"model_stats": _list(_object())}),
    ("post", "/v2/repository/index", "List the models", _list(_object(name=_TEXT, version=_TEXT, state=_TEXT))),
    ("get", "/v2/systemsharedmemory/status", "Regions of shared memory", _list(_object(name=_TEXT, key=_TEXT))),
    *((each, "/v2/trace/setting", "Whether traces are written, as Triton says it", _TRACE) for each in ("get", "post")),
    *((each, "/v2/logging", "What is logged, as Triton says it", _LOG) for each in ("get", "post")),
    ("get", "/metrics", "Metrics for Prometheus", "text/plain"),
)
_TENSORS: dict[str, Any] = _list(_object(name=_TEXT, datatype=_TEXT, shape=_list(_WHOLE)))
_OF_A_MODEL: tuple[tuple[str, str, str, Any], ...] = (
    ("get", "/v2/models/{name}", "Inputs and outputs", {"name": _TEXT, "inputs": _TENSORS, "outputs": _TENSORS}),
    ("get", "/v2/models/{name}/ready", "Whether it takes requests", {"name": _TEXT, "ready": {"const": True}}),
    ("get", "/v2/models/{name}/config", "Configuration, as Triton says it", {"name": _TEXT, "max_batch_size": _WHOLE}),
    ("get", "/v2/models/{name}/stats", "Statistics", {"model_stats": _list(_object())}),
    (
        "post",
        "/v2/models/{name}/infer",
        "Infer, with tensors as JSON or bytes",
        {"model_name": _TEXT, "outputs": _TENSORS},
    ),
    ("post", "/v1/models/{name}:predict", "Infer from what the model's preprocess takes", "*/*"),
    ("post", "/v2/repository/models/{name}/load", "Load it anew", None),
    ("post", "/v2/repository/models/{name}/unload", "Unload it", None),
)


def document(services: Iterable[Service], version: str) -> dict[str, Any]:
    """The addresses of this server in OpenAPI's form."""
    services = list(services)
    paths: dict[str, Any] = {}
    if any(service.ready and service.signature.detects for service in services):
        paths["/v1/detect"] = {"post": _detect([service.name for service in services])}
    for service in services:
        for method, path, about, found in _OF_A_MODEL:
            operation = paths.setdefault(path.format(name=service.name), {})[method] = _operation(about, found)
            if path.endswith("/infer") and service.ready:
                operation["requestBody"] = _request(service.signature)
                operation["responses"]["200"]["content"][_BYTES] = {}
            elif path.endswith(":predict"):
                operation["requestBody"] = {"required": True, "content": {"*/*": {}}}
    for method, path, about, found in _OTHERS:
        paths.setdefault(path, {})[method] = _operation(about, found)
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


def _operation(about: str, found: Any) -> dict[str, Any]:
    """An operation whose answer is a JSON object of these properties, or of another schema, of another type, or empty."""
    answer: dict[str, Any] = {"description": "OK"}
    if isinstance(found, str):
        answer["content"] = {found: {}}
    elif found is not None:
        schema = found if "type" in found else {**_object(**found)}
        answer["content"] = {"application/json": {"schema": schema}}
    return {"summary": about, "responses": {"200": answer, "default": _ERROR}}


def _request(signature: Signature) -> dict[str, Any]:
    """What a request to infer has to be."""
    inputs = [_input(spec) for spec in signature.inputs]
    if signature.file is not None:
        inputs.append(_input(signature.file))
    outputs = {"name": {"enum": [spec.name for spec in signature.outputs]}}
    schema = _object(inputs={"type": "array", "minItems": 1, "items": {"anyOf": inputs}})
    schema["properties"] |= {
        "id": _TEXT,
        "parameters": {"type": "object"},
        "outputs": {"type": "array", "items": _object(**outputs)},
    }
    return {"required": True, "content": {"application/json": {"schema": schema}, _BYTES: {}}}


def _input(spec: TensorSpec) -> dict[str, Any]:
    dims = [{"const": dim} if dim >= 0 else {**_WHOLE, "minimum": 0} for dim in spec.dims]
    shape = {"type": "array", "prefixItems": dims, "minItems": len(dims), "maxItems": len(dims)}
    made = _object(name={"const": spec.name}, datatype={"const": spec.datatype}, shape=shape)
    made["properties"] |= {"data": {"type": "array"}, "parameters": {"type": "object"}}
    return made


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
            },
            "default": _ERROR,
        },
    }
