"""Serve the files of the demo page."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...utils.optional import require

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["HEADERS", "PageFile", "read_files", "show_file"]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",  # a browser asks each time whether its copy is still the same
}
"""Headers of each of the page's files: what a browser may load, send and use on the page."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page with its headers.

    Attributes:
        content: Its bytes.
        headers: Of the answer, with an ETag by which a browser asks whether its copy is still the same.
    """

    content: bytes
    headers: dict[str, str]


def show_file(files: Mapping[str, PageFile], request: Request) -> Response:
    """Answer ``/`` and ``/page/NAME``."""
    responses = require("starlette.responses", extra="serve", package="starlette")
    exceptions = require("starlette.exceptions", extra="serve", package="starlette")
    file = files.get(request.path_params.get("name", "index.html"))
    if file is None:
        raise exceptions.HTTPException(404)
    same = file.headers["etag"] in request.headers.get("if-none-match", "")
    response: Response = responses.Response(b"" if same else file.content, 304 if same else 200, file.headers)
    return response


def read_files() -> dict[str, PageFile]:
    """Read the files of the page, by name; other names are not found."""
    files = {}
    for path in sorted(Path(__file__).parent.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            files[path.name] = PageFile(content, {**HEADERS, "content-type": _TYPES[path.suffix], "etag": tag})
    return files
