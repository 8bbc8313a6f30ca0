"""Endpoints of the HTTP server: path, method, role, handler, and OpenAPI description."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..backends.backend import Backend
from ..backends.service import Service
from ..model.spec import Limits
from ..urls import UrlFetcher
from .memory import Memory

if TYPE_CHECKING:
    from ..page import PageFile

__all__ = ["AppState", "Endpoint", "with_versions"]


@dataclass(frozen=True)
class Endpoint:
    """One path of the server with one method.

    Attributes:
        path: As Starlette writes it: ``/v2/models/{model}/ready``.
        method: Of HTTP; an address for GET also takes HEAD.
        role: The role that a key needs; None: it is open to everybody. All endpoints of one path have the same.
        summary: One line for the OpenAPI document; empty: the endpoint is not in it.
        handler: Takes the state and the request, and the request's body where the method is POST and ``reads_body`` is set. Gives a
            response, or a value that is answered as JSON. It may be a coroutine.
        answer: What the OpenAPI document says of the answer: the properties of a JSON object, a schema, a media type, or None for no body.
        describe: Completes the operation in the OpenAPI document for the models that the address is of, or for all of them; gives
            None if the address has no use with them.
        reads_body: Whether the body is read before ``handler`` is called, and a POST request from a page of another origin is refused
            unless it has a key.
    """

    path: str
    method: Literal["GET", "POST"]
    role: str | None
    summary: str
    handler: Callable[..., Any]
    answer: Any = None
    describe: Callable[[dict[str, Any], Sequence[Service]], dict[str, Any] | None] | None = None
    reads_body: bool = True


@dataclass(frozen=True)
class AppState:
    """Objects that the handlers of endpoints use.

    Attributes:
        backend: Loads models and computes requests.
        limits: Of requests.
        memory: That clients share with the server.
        fetcher: Fetches images that clients name by URLs; None: they may not.
        page: The files of the page in the browser, by name.
        endpoints: All addresses of the server.
    """

    backend: Backend
    limits: Limits
    memory: Memory
    fetcher: UrlFetcher | None
    page: Mapping[str, PageFile]
    endpoints: Sequence[Endpoint]


def with_versions(endpoint: Endpoint) -> tuple[Endpoint, Endpoint]:
    """A model's endpoint, and the same for one version, which the OpenAPI document omits."""
    path = endpoint.path.replace("{model}", "{model}/versions/{version}")
    return endpoint, replace(endpoint, path=path, summary="")
