"""An answer in one piece says what uvicorn's own two say."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from pytrtplugins.serving.http.buffered_request import BufferedRequest

HEADERS = [(b"content-type", b"application/octet-stream"), (b"inference-header-content-length", b"12")]


class Transport:
    def __init__(self):
        self.written = []

    def write(self, data):
        self.written.append(bytes(data))


def cycle(keep_alive=True):
    transport, done = Transport(), []
    log = logging.getLogger("test")
    scope: Any = {"method": "POST"}
    made = RequestResponseCycle(
        scope=scope, transport=transport, flow=FlowControl(transport), logger=log, access_logger=log,
        access_log=False, default_headers=[], message_event=asyncio.Event(), expect_100_continue=False,
        keep_alive=keep_alive, on_response=lambda: done.append(True),
    )  # fmt: skip
    return made, transport, done


def whole(made):
    return BufferedRequest(made, lambda coroutine: coroutine.close())


def test_it_is_one_write_of_the_bytes_that_two_messages_make():
    one, other = cycle(), cycle()
    assert whole(one[0]).answer(HEADERS, b"body")

    async def messages():
        start = {"status": 200, "headers": [*HEADERS, (b"content-length", b"4")]}
        await other[0].send({"type": "http.response.start", **start})
        await other[0].send({"type": "http.response.body", "body": b"body"})

    asyncio.run(messages())
    assert one[1].written == [b"".join(other[1].written)]
    for made, _, done in (one, other):
        assert (made.response_started, made.response_complete, made.message_event.is_set(), done) == (
            True,
            True,
            True,
            [True],
        )


def test_what_it_does_not_answer_it_leaves_alone():
    closing, slow, gone, large = cycle(keep_alive=False), cycle(), cycle(), cycle()
    slow[0].flow.pause_writing()
    gone[0].disconnected = True
    for (made, transport, done), body in ((closing, b""), (slow, b""), (gone, b""), (large, bytes(1 << 17))):
        assert not whole(made).answer(HEADERS, body)
        assert (transport.written, done, made.response_started) == ([], [], False)


def test_a_body_is_given_once_all_of_it_is_there():
    made, _, _ = cycle()
    made.body += b"first"
    assert whole(made).body() is None
    made.body += b" last"
    made.more_body = False
    assert whole(made).body() == b"first last"
    made.waiting_for_100_continue = True  # the client waits to be told that it may send
    assert whole(made).body() is None
