"""Clients that behave badly, each in a process of its own, at the lowest priority: they stand for other machines."""

from __future__ import annotations

import asyncio
import functools
import gzip
import os
import random
import resource
import struct
import time
import zlib
from collections.abc import Awaitable, Callable

from .load import Outcome
from .servers import post

_STOP_S = 5.0
_TURN_S = 0.02


def prepare(name: str) -> Outcome:
    """Make what an attack sends, where that takes seconds: it then begins at once, and the time is not among its CPU time."""
    if name in _MADE:
        _MADE[name]()
    return Outcome()


def run(name: str, port: int, grpc_port: int, seconds: float) -> Outcome:
    """Attack for a while; ``wrong`` counts what came back: statuses, and 0 for connections that were closed without an answer."""
    os.nice(19)
    begun, cpu = time.monotonic(), time.process_time()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    outcome = Outcome()
    attack = _Attack(port, grpc_port, seconds, outcome)
    asyncio.run(attack.run(ATTACKS[name]))
    outcome.seconds, outcome.cpu_s = time.monotonic() - begun, time.process_time() - cpu
    return outcome


def burn(share: float, seconds: float) -> Outcome:
    """Take a share of a core at the same priority as an attack, and ask the server nothing."""
    os.nice(19)
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + seconds:
        taken = time.process_time()
        while time.process_time() - taken < share * _TURN_S and time.monotonic() < begun + seconds:
            pass
        time.sleep(max(0.0, now + _TURN_S - time.monotonic()))
    return Outcome(seconds=time.monotonic() - begun, cpu_s=time.process_time())


class _Attack:
    def __init__(self, port: int, grpc_port: int, seconds: float, outcome: Outcome) -> None:
        self.port, self.grpc_port, self.outcome = port, grpc_port, outcome
        self.until = time.monotonic() + seconds
        self.random = random.Random(1)

    async def run(self, attack: Callable[[_Attack], Awaitable[None]]) -> None:
        try:
            await asyncio.wait_for(attack(self), self.until - time.monotonic() + _STOP_S)
        except TimeoutError:
            return

    @property
    def on(self) -> bool:
        return time.monotonic() < self.until

    async def many(self, count: int, one: Callable[[], Awaitable[None]], pause_s: float = 1.0) -> None:
        """Keep so many connections busy; one that ends is replaced after a pause."""

        async def forever(number: int) -> None:
            await asyncio.sleep(pause_s * number / count)
            while self.on:
                try:
                    await one()
                except OSError:
                    self.outcome.wrong[0] += 1
                await asyncio.sleep(pause_s)

        await asyncio.gather(*map(forever, range(count)))

    async def said(self, data: bytes, port: int | None = None, each_s: float = 0.0) -> None:
        """Send, at once or byte by byte, until something comes back, the server closes, or time is over; count what came back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port)
        self.outcome.sent += 1
        sending = asyncio.ensure_future(self._send(writer, data, each_s))
        try:
            found = await asyncio.wait_for(reader.read(1 << 16), max(0.0, self.until - time.monotonic()))
            self.outcome.wrong[int(found[9:12]) if found.startswith(b"HTTP/1.1 ") else 0] += 1
        except TimeoutError:
            return
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.transport.abort()

    async def _send(self, writer: asyncio.StreamWriter, data: bytes, each_s: float) -> None:
        for part in [data] if not each_s else [data[at : at + 1] for at in range(len(data))]:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(each_s)


async def _half_bodies(attack: _Attack) -> None:
    head = post("/v2/models/raw/infer", b"", Inference_Header_Content_Length=0).replace(
        b"Length: 0\r\nInf", b"Length: 519168\r\nInf"
    )
    await attack.many(200, lambda: attack.said(head + bytes(250_000)))


async def _idle(attack: _Attack) -> None:
    await attack.many(10_000, lambda: attack.said(b""), 5.0)


async def _slowloris(attack: _Attack) -> None:
    await attack.many(
        1000, lambda: attack.said(b"POST /v1/detect HTTP/1.1\r\nHost: a\r\n" + 1000 * b"X-A: b\r\n", None, 1.0)
    )


async def _noise(attack: _Attack) -> None:
    async def one() -> None:
        port = attack.random.choice((attack.port, attack.grpc_port))
        await attack.said(attack.random.randbytes(attack.random.choice((10, 1000, 100_000))), port)

    await attack.many(100, one)


@functools.cache
def _gzip_bomb() -> bytes:
    return post("/v2/models/tiny/infer", gzip.compress(bytes(1 << 30), 1), Content_Encoding="gzip")


async def _gzip_bombs(attack: _Attack) -> None:
    await attack.many(4, lambda: attack.said(_gzip_bomb()))


@functools.cache
def _gzip_tail() -> bytes:
    return post("/v2/models/tiny/infer", gzip.compress(bytes(2000)) + bytes(60 << 20), Content_Encoding="gzip")


async def _gzip_tails(attack: _Attack) -> None:
    await attack.many(4, lambda: attack.said(_gzip_tail()))


async def _image_bombs(attack: _Attack) -> None:
    bomb = post("/v1/detect", png(60_000, 60_000), Content_Type="image/png")
    await attack.many(20, lambda: attack.said(bomb))


async def _huge_heads(attack: _Attack) -> None:
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + (1 << 20) * b"a"
    await attack.many(100, lambda: attack.said(head))


def png(width: int, height: int) -> bytes:
    """A PNG that says a size, and has nearly nothing in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


ATTACKS: dict[str, Callable[[_Attack], Awaitable[None]]] = {
    "200 half-sent bodies": _half_bodies,
    "10,000 idle connections": _idle,
    "1,000 slow heads (slowloris)": _slowloris,
    "random bytes on both ports": _noise,
    "gzip bombs of 1 GiB": _gzip_bombs,
    "60 MiB behind the end of gzip data": _gzip_tails,
    "images that say 60,000 x 60,000": _image_bombs,
    "heads of 1 MiB": _huge_heads,
}
"""By name; what they say is in the names."""
_MADE = {"gzip bombs of 1 GiB": _gzip_bomb, "60 MiB behind the end of gzip data": _gzip_tail}
