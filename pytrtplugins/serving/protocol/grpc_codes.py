"""Map HTTP status codes to gRPC's."""

from __future__ import annotations

from typing import Any

from ...errors import RequestError
from ...utils.optional import require
from .memory import TakenNameError

__all__ = ["status_code"]

_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def status_code(error: RequestError) -> Any:
    """The ``grpc.StatusCode`` of an error."""
    grpc = require("grpc", extra="grpc", package="grpcio")
    if isinstance(error, TakenNameError):
        return grpc.StatusCode.ALREADY_EXISTS  # over HTTP it is 400, as Triton's
    other = (
        "INVALID_ARGUMENT" if 400 <= error.status < 500 else "INTERNAL"
    )  # such as 422 of a user's model: the client is to blame
    return getattr(grpc.StatusCode, _CODES.get(error.status, other))
