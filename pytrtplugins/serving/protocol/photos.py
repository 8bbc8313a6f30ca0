"""Files of a form, and the answers to several of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from ...utils.optional import require
from ..model import Request as ModelRequest
from ..service import Service

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["MOST_FILES", "answer_all", "read_form"]

MOST_FILES = 64
"""Of a form."""
_AT_A_TIME = 16  # of a form: they take memory while they wait


async def read_form(request: Request, body: bytes) -> list[tuple[bytes, str]]:
    """The files of a form (multipart), each with its type, in their order.

    Raises:
        RequestError: there is none, there are too many, or the form is damaged.
    """
    requests = require("starlette.requests", extra="serve", package="starlette")
    exceptions = require("starlette.exceptions", extra="serve", package="starlette")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        async with requests.Request(request.scope, receive).form(max_files=MOST_FILES, max_fields=16) as form:
            files = [value for _, value in form.multi_items() if not isinstance(value, str)]
            found = [(await file.read(), file.content_type or "") for file in files]
    except exceptions.HTTPException as error:
        raise RequestError(f"the form cannot be read: {error.detail}") from None
    if not found:
        raise RequestError("the form has no file; expected one, such as of: curl -F image=@dog.jpg")
    return found


async def answer_all(service: Service, requests: Sequence[ModelRequest]) -> list[Any]:
    """The answers to several requests, in their order; ``{"error": text, "status": number}`` in the place of one that failed.

    Raises:
        RequestError: all failed, with the first one's error; or an answer is not JSON.
    """
    room = asyncio.Semaphore(_AT_A_TIME)

    async def one(request: ModelRequest) -> Any:
        async with room:
            try:
                return (await service.answer(request)).value
            except RequestError as error:
                return error

    found = await asyncio.gather(*map(one, requests))
    for index, each in enumerate(found):
        if isinstance(each, RequestError) and each.status == 429:  # there may be room for it without the others
            found[index] = await one(requests[index])
    errors = [each for each in found if isinstance(each, RequestError)]
    if len(errors) == len(found):
        raise errors[0]
    if any(isinstance(each[0] if isinstance(each, tuple) and each else each, bytes) for each in found):
        raise RequestError("several files can only be answered with JSON: send one file at a time, or ask for JSON")
    return [{"error": str(each), "status": each.status} if isinstance(each, RequestError) else each for each in found]
