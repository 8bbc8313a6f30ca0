"""Bodies that arrive at the same time share a limit, and what was taken of it is given back."""

from __future__ import annotations

import asyncio

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.body import read_body

LIMITS = Limits(body_bytes=1000, bodies_bytes=1500, body_seconds=20)


def body(size, event=None, disconnects=False):
    """A body in two parts; the second comes once the event is set."""
    parts = [bytes(size - 1), b"1"]

    async def receive():
        part = parts.pop(0)
        if not parts and event is not None:
            await event.wait()
        if not parts and disconnects:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    return receive


def test_bodies_that_arrive_at_a_time_have_a_limit_together():
    async def run():
        event = asyncio.Event()
        first = asyncio.create_task(read_body(body(900, event), {}, LIMITS))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="too many large requests") as caught:
            await read_body(body(900), {}, LIMITS)
        assert (caught.value.status, caught.value.retry_after) == (503, 1)
        assert len(await read_body(body(500), {}, LIMITS)) == 500
        event.set()
        assert len(await first) == 900
        return len(await read_body(body(900), {}, LIMITS))

    assert asyncio.run(run()) == 900


def test_bodies_that_end_early_give_back_what_they_took():
    async def run():
        for _ in range(5):
            with pytest.raises(RequestError, match="the client is gone"):
                await read_body(body(900, disconnects=True), {}, LIMITS)
            with pytest.raises(RequestError, match="may have 1,000 bytes"):
                await read_body(body(1400), {}, LIMITS)
            waiting = asyncio.create_task(read_body(body(900, asyncio.Event()), {}, LIMITS))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        return len(await read_body(body(1000), {}, LIMITS))

    assert asyncio.run(run()) == 1000


def test_one_body_of_the_largest_size_always_fits():
    limits = Limits(body_bytes=1000, bodies_bytes=10)
    assert len(asyncio.run(read_body(body(1000), {}, limits))) == 1000


def test_spaces_around_a_length_are_allowed():
    assert len(asyncio.run(read_body(body(4), {b"content-length": b"4 "}, LIMITS))) == 4
