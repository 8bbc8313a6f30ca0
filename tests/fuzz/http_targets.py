"""Targets for what comes over a connection to a server: heads and bodies of requests; and for the file of its keys."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator
from typing import Any

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.access.keys import read_keys
from pytrtplugins.serving.http.connection import connection_class
from pytrtplugins.serving.model.spec import Limits
from tests.fuzz.files import file
from tests.fuzz.registry import TARGETS, target

__all__ = ["connections"]

_SECONDS = 2.0  # until all of a connection must have ended
_LIMITS = Limits(head_seconds=0.5, body_seconds=0.5, body_bytes=1 << 16, head_bytes=4096)


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers with the bytes of a request's body."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        size, more = size + len(message["body"]), message.get("more_body", False)
    body = str(size).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


@functools.cache
def _server() -> tuple[asyncio.AbstractEventLoop, Any, Any, type[Any]]:
    from uvicorn import Config
    from uvicorn.server import ServerState

    loop = asyncio.new_event_loop()
    config = Config(
        _echo, ws="none", log_config=None, log_level="error", access_log=False, lifespan="off", timeout_keep_alive=1
    )
    config.load()
    return loop, config, ServerState(), connection_class(_LIMITS)


async def _exchange(data: bytes, problems: list[str]) -> bytes:
    loop, config, state, protocol = _server()
    loop.set_exception_handler(lambda _, context: problems.append(str(context.get("exception") or context["message"])))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    await loop.connect_accepted_socket(lambda: protocol(config, state, {}, loop), theirs)
    answer, cut = b"", len(data) // 2
    with ours, contextlib.suppress(ConnectionError):
        await loop.sock_sendall(ours, data[:cut])
        await asyncio.sleep(0)
        await loop.sock_sendall(ours, data[cut:])
        ours.shutdown(socket.SHUT_WR)
        while block := await asyncio.wait_for(loop.sock_recv(ours, 1 << 16), _SECONDS):
            answer += block
    return answer


@target
def http_connection(data: bytes) -> object:
    """Bytes of a client, in two parts: requests with heads and bodies, one behind the other."""
    problems: list[str] = []
    answer = _server()[0].run_until_complete(_exchange(data, problems))
    assert not problems, problems[0]
    assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:80]
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RequestError(answer[:200].decode("latin-1"))
    return answer


TARGETS["keys_file"] = lambda data: read_keys(str(file(data, "keys.toml")))


def connections() -> Iterator[tuple[str, bytes | str]]:
    """Seeds for these targets."""
    head = "POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\n"
    yield "http_connection/get", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    yield "http_connection/ahead", "GET /a HTTP/1.1\r\nHost: x\r\n\r\n" * 3
    yield "http_connection/body", f"{head}Content-Length: 5\r\n\r\nhello"
    yield "http_connection/chunks", f"{head}Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nTrailer: x\r\n\r\n"
    yield "http_connection/both", f"{head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield "http_connection/expect", f"{head}Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab"
    yield (
        "http_connection/upgrade",
        "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nPRI * HTTP/2.0\r\n\r\n",
    )
    yield "http_connection/old", "GET / HTTP/1.0\r\n\r\n"
    yield "http_connection/twice", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"
    digest = "0" * 64
    yield (
        "keys_file/two",
        f'[keys.a]\nsha256 = "{digest}"\nroles = ["infer"]\nrate = 5.0\n[keys.b]\nsha256 = "{digest}"\n',
    )
    yield "keys_file/unknown", f'[keys.a]\nsha256 = "{digest}"\nrole = "infer"\n'
