"""The role that a key needs, by path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

__all__ = ["ADMIN", "INFER", "grpc_role", "http_role"]

INFER, ADMIN = "infer", "admin"

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


def http_role(roles: Mapping[str, str | None]) -> Callable[[str], str | None]:
    """Make a function that returns the role required for a path, None if everybody may use it.

    Args:
        roles: The role of each path, where ``{name}`` stands for text without a slash; the first path that fits an address counts.
            An address that fits none needs `ADMIN`.
    """
    patterns = (re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)) for path in roles)
    pattern, role_of_group = (
        re.compile(f"(?:{'|'.join(f'({path_pattern})' for path_pattern in patterns)})$"),
        (ADMIN, *roles.values()),
    )

    @lru_cache(maxsize=256)
    def role(path: str) -> str | None:
        match = pattern.match(path)  # as Starlette matches: ``$`` also fits before a newline at the end
        return role_of_group[match.lastindex or 0] if match and match.end() == len(path) else ADMIN

    return role


def grpc_role(method: str) -> str | None:
    """The role that a method of gRPC needs, by its name; None: it is open to everybody."""
    if method in _OPEN_METHODS:
        return None
    return INFER if method in _METHODS_OF_CLIENTS else ADMIN
