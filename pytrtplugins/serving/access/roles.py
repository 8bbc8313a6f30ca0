"""Which role a key needs for which request."""

from __future__ import annotations

import re

__all__ = ["ADMIN", "INFER", "grpc_role", "http_role"]

INFER, ADMIN = "infer", "admin"

_OPEN = re.compile(r"/v2/health/(?:live|ready)|/|/page/[^/]+")  # the page's files are the same for everybody
_OF_CLIENTS = re.compile(
    r"/v2/?|/v2/repository/index|/docs|/openapi\.json|/v1/detect|/v1/models/[^/]+(?:/versions/[^/]+)?:predict"
    r"|/v2/models/(?!stats$)[^/]+(?:/versions/[^/]+)?(?:/infer|/ready|/config)?"
)
_OPEN_METHODS = {"ServerLive", "ServerReady"}
_METHODS_OF_CLIENTS = {
    "ServerMetadata",
    "ModelReady",
    "ModelMetadata",
    "ModelConfig",
    "ModelInfer",
    "ModelStreamInfer",
    "RepositoryIndex",
}


def http_role(path: str) -> str | None:
    """The role that an address of HTTP needs: `INFER`, or `ADMIN` for all that is not known here; None: it is open to everybody."""
    if _OPEN.fullmatch(path):
        return None
    return INFER if _OF_CLIENTS.fullmatch(path) else ADMIN


def grpc_role(method: str) -> str | None:
    """The same of a gRPC method, by its name."""
    if method in _OPEN_METHODS:
        return None
    return INFER if method in _METHODS_OF_CLIENTS else ADMIN
