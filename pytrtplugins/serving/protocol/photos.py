"""Images of a request, from a form's files or from URLs, and the answers to several of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import FormatError, RequestError
from ...utils.optional import require
from ...utils.text_formats import parse_json, shorten
from ..backends.service import Service
from ..model.model import Request as ModelRequest
from ..urls import Budget, UrlFetcher

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["MOST_FILES", "File", "answer_all", "read_form", "read_urls"]

MOST_FILES = 64
"""Of a request."""
File = tuple[bytes, str]
"""What is in a file, and its type."""
_AT_A_TIME = 16  # of a form: they take memory while they wait


async def read_form(request: Request, body: bytes) -> list[File]:
    """The files of a multipart form with their types, in order.

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
            contents = [(await file.read(), file.content_type or "") for file in files]
    except exceptions.HTTPException as error:
        raise RequestError(f"the form cannot be read: {error.detail}") from None
    if not contents:
        raise RequestError("the form has no file; expected one, such as of: curl -F image=@dog.jpg")
    return contents


async def read_urls(body: bytes, fetcher: UrlFetcher | None, max_bytes: int) -> list[File | RequestError]:
    """Fetch the URLs of ``{"url": text}`` or ``{"urls": [text, ...]}``, in order; an error for each that fails.

    Raises:
        RequestError: no URLs are fetched, the body is something else, or the only URL cannot be fetched.
    """
    if fetcher is None:
        raise RequestError(
            "this server fetches no URLs: send the image itself (its owner allows URLs with pytrt serve --allow-urls https)",
            status=403,
        )
    try:
        request = parse_json(body.decode(), "the request")
    except (FormatError, UnicodeDecodeError) as error:
        raise RequestError(str(error)) from None
    urls = request.get("urls", [request.get("url")]) if isinstance(request, dict) else []
    if not isinstance(urls, list) or not 1 <= len(urls) <= MOST_FILES or not all(isinstance(url, str) for url in urls):
        raise RequestError(
            f'expected {{"url": text}}, or {{"urls": [text, ...]}} with {MOST_FILES} at most, found {shorten(request)}'
        )
    budget = Budget(max_bytes)

    async def one(url: str) -> File | RequestError:
        try:
            return await fetcher.fetch(url, budget), ""
        except RequestError as error:
            return error

    contents = await asyncio.gather(*map(one, urls))
    if len(contents) == 1 and isinstance(contents[0], RequestError):
        raise contents[0]
    return list(contents)


async def answer_all(service: Service, requests: Sequence[ModelRequest | RequestError]) -> list[Any]:
    """Answers to several requests, in order; ``{"error": text, "status": number}`` for each that failed.

    Raises:
        RequestError: all failed, with the first one's error; or an answer is not JSON.
    """
    room = asyncio.Semaphore(_AT_A_TIME)

    async def one(request: ModelRequest | RequestError) -> Any:
        if isinstance(request, RequestError):
            return request
        async with room:
            try:
                return (await service.answer(request)).value
            except RequestError as error:
                return error

    answers = await asyncio.gather(*map(one, requests))
    for index, answer in enumerate(answers):
        if isinstance(answer, RequestError) and answer.status == 503:  # there may be room for it without the others
            answers[index] = await one(requests[index])
    errors = [answer for answer in answers if isinstance(answer, RequestError)]
    if len(errors) == len(answers):
        raise errors[0]
    if any(isinstance(answer[0] if isinstance(answer, tuple) and answer else answer, bytes) for answer in answers):
        raise RequestError("several files can only be answered with JSON: send one file at a time, or ask for JSON")
    return [
        {"error": str(answer), "status": answer.status} if isinstance(answer, RequestError) else answer
        for answer in answers
    ]
