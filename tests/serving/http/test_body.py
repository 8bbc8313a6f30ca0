"""Compressed bodies come out as they were; bodies that arrive at the same time share a limit, and give back what they took."""

import asyncio
import gzip
import zlib

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.http.body import UnreadError, read_body
from tests.randomness import generator
from tests.serving.http.bombs import gzip_of_zeros
from tests.serving.http.waiting import no_thread_to_decompress

LIMITS = Limits(body_bytes=3 << 20)
RANDOM = generator(0).bytes(100_000)


def read(body, coding):
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    return asyncio.run(read_body(receive, {b"content-encoding": coding}, LIMITS))


@pytest.mark.parametrize("data", [b"", b"x", RANDOM, bytes(3 << 20), bytes(1 << 20), RANDOM[:1024] * 2000])
def test_it_comes_out_as_it_was(data):
    assert read(gzip.compress(data), b"gzip") == data
    assert read(zlib.compress(data), b"deflate") == data


def test_what_becomes_larger_than_a_body_may_be_is_refused():
    with pytest.raises(RequestError, match="request size exceeds the maximum allowed value of 3145728 bytes") as caught:
        read(gzip.compress(bytes((3 << 20) + 1)), b"gzip")
    assert caught.value.status == 413


@pytest.mark.parametrize("damaged", [gzip.compress(RANDOM, mtime=0)[:n] for n in (-9, 5000)] + [b"", bytes(5000)])
def test_what_is_damaged_is_refused(damaged):
    with pytest.raises(RequestError, match=r"incomplete|not valid"):
        read(damaged, b"gzip")


@pytest.mark.parametrize("behind", [b"x", bytes(100_000), zlib.compress(RANDOM)], ids=["byte", "zeros", "other data"])
@pytest.mark.parametrize("data", [b"x", RANDOM], ids=["short", "long"])
def test_what_stands_behind_the_end_is_refused(data, behind):
    for coding, compressed in (b"gzip", gzip.compress(data)), (b"deflate", zlib.compress(data)):
        with pytest.raises(RequestError, match="something behind the end") as caught:
            read(compressed + behind, coding)
        assert caught.value.status == 400


@pytest.mark.timeout(20)
def test_what_stands_behind_a_bomb_in_its_last_part_is_refused_at_once():
    """zlib keeps it in two places, and gave it back for ever."""
    bomb = gzip.compress(bytes(2 << 20)) + bytes(3000)
    with pytest.raises(RequestError, match="something behind the end"):
        read(bomb, b"gzip")


class Arriving:
    """A body in parts of 64 KiB; ``left`` are those that nobody has asked for."""

    def __init__(self, data):
        self.left = [data[at : at + (1 << 16)] for at in range(0, len(data), 1 << 16)]
        self.parts = len(self.left)

    def read(self, coding=b"gzip", limits=LIMITS):
        return asyncio.run(read_body(self.receive, {b"content-encoding": coding}, limits))

    async def receive(self):
        part = self.left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self.left)}


def test_what_comes_in_parts_is_decompressed():
    data = (RANDOM * 28)[: LIMITS.body_bytes - 10_000]
    assert Arriving(gzip.compress(data)).read() == data
    assert Arriving(zlib.compress(data)).read(b"deflate") == data


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (gzip_of_zeros, 413),
        (gzip.compress(b"x") + bytes(2 << 20), 400),
        (bytes(2 << 20), 400),
    ],
    ids=["bomb", "behind the end", "damaged"],
)
def test_a_compressed_body_is_not_read_on_once_it_is_refused(data, status):
    body = Arriving(data() if callable(data) else data)
    with pytest.raises(UnreadError) as caught:
        body.read()
    assert caught.value.status == status
    assert body.parts - len(body.left) <= 2


def test_a_bomb_is_one_member_of_zeros():
    assert gzip.decompress(gzip_of_zeros(3)) == bytes(3 << 20)


def test_a_form_that_is_unknown_is_refused_before_anything_is_read():
    body = Arriving(bytes(1 << 20))
    with pytest.raises(UnreadError, match="Unsupported compression type: the Content-Encoding is 'br'") as caught:
        body.read(b"br")
    assert caught.value.status == 415
    assert len(body.left) == body.parts


def test_of_what_is_refused_whole_nothing_is_unread():
    for data in gzip.compress(b"x") + b"x", gzip.compress(bytes(4 << 20)), b"":
        with pytest.raises(RequestError) as caught:
            read(data, b"gzip")
        assert not isinstance(caught.value, UnreadError)


def test_decompressed_bytes_count_among_those_that_are_on_their_way():
    limits = Limits(body_bytes=2 << 20, bodies_bytes=2 << 20)
    data = gzip.compress(bytes(1_100_000))

    async def run():
        event = asyncio.Event()

        def receive():
            parts = [data[:-1], data[-1:]]

            async def received():
                if len(parts) == 1:
                    await event.wait()
                return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

            return received

        headers = {b"content-encoding": b"gzip"}
        both = [asyncio.create_task(read_body(receive(), headers, limits)) for _ in range(2)]
        done, others = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        refused = done.pop().exception()
        event.set()
        return refused, len(await others.pop())

    refused, size = asyncio.run(run())
    assert (refused.status, refused.retry_after, size) == (503, 1, 1_100_000)


SMALL = Limits(body_bytes=1000, bodies_bytes=1500, body_seconds=20)


def body(size, event=None, disconnects=False, whole=False):
    """A body in two parts, or whole; the last part, of one byte, comes once the event is set."""
    parts = [bytes(size)] if whole else [bytes(size - 1), b"1"]

    async def receive():
        part = parts.pop(0)
        if not parts and event is not None:
            await event.wait()
        if not parts and disconnects:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    return receive


def test_bodies_that_end_early_give_back_what_they_took():
    async def run():
        for _ in range(5):
            with pytest.raises(RequestError, match="the client is gone"):
                await read_body(body(900, disconnects=True), {}, SMALL)
            with pytest.raises(RequestError, match="exceeds the maximum allowed value of 1000 bytes"):
                await read_body(body(1400), {}, SMALL)
            waiting = asyncio.create_task(read_body(body(900, asyncio.Event()), {}, SMALL))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        return len(await read_body(body(1000), {}, SMALL))

    assert asyncio.run(run()) == 1000


@pytest.mark.parametrize("form", ["one part", "parts", "with its length", "there already"])
def test_a_body_of_exactly_the_largest_size_is_taken_and_a_byte_more_is_not(form):
    def read(size):
        headers = {b"content-length": b"%d" % size} if form == "with its length" else {}
        receive = body(size, whole=form != "parts")
        there = bytes(size) if form == "there already" else None
        return len(asyncio.run(read_body(receive, headers, SMALL, there)))

    assert read(1000) == 1000
    with pytest.raises(RequestError, match="exceeds the maximum allowed value of 1000 bytes") as caught:
        read(1001)
    assert caught.value.status == 413


@pytest.mark.parametrize(("size", "refused"), [(500, False), (601, False), (602, True), (900, True)])
def test_bodies_under_way_may_fill_their_limit_together(size, refused):
    """899 bytes are there, and 1,500 may be."""

    async def run():
        event = asyncio.Event()
        first = asyncio.create_task(read_body(body(900, event), {}, SMALL))
        await asyncio.sleep(0)
        if refused:
            with pytest.raises(RequestError, match="too many large requests") as caught:
                await read_body(body(size), {}, SMALL)
            assert (caught.value.status, caught.value.retry_after) == (503, 1)
        else:
            assert len(await read_body(body(size), {}, SMALL)) == size
        event.set()
        return len(await first), len(await read_body(body(900), {}, SMALL))

    assert asyncio.run(run()) == (900, 900)


def test_one_body_of_the_largest_size_always_fits():
    limits = Limits(body_bytes=1000, bodies_bytes=10)
    assert len(asyncio.run(read_body(body(1000), {}, limits))) == 1000


def test_spaces_around_a_length_are_allowed():
    assert len(asyncio.run(read_body(body(4), {b"content-length": b"4 "}, SMALL))) == 4


HURRIED = Limits(body_bytes=3 << 20, body_seconds=0.2)


def test_what_a_body_waits_for_the_decompression_is_not_the_clients_time():
    async def run():
        with no_thread_to_decompress() as free:
            asyncio.get_running_loop().call_later(2.5 * HURRIED.body_seconds, free.set)
            return await read_body(Arriving(gzip.compress(RANDOM * 2)).receive, {b"content-encoding": b"gzip"}, HURRIED)

    assert asyncio.run(run()) == RANDOM * 2


@pytest.mark.parametrize("coding", [b"gzip", b"identity"])
def test_the_times_that_a_client_takes_for_parts_are_added(coding):
    body = Arriving(gzip.compress(RANDOM * 20))

    async def receive():
        await asyncio.sleep(0.3 * HURRIED.body_seconds)
        return await body.receive()

    with pytest.raises(UnreadError, match="not there within") as caught:
        asyncio.run(read_body(receive, {b"content-encoding": coding}, HURRIED))
    assert caught.value.status == 408
    assert 2 <= body.parts - len(body.left) <= 4  # nobody waits for the first
