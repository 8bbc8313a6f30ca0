"""Compressed bodies, of any size and in any form, come out as they were."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.body import read_body
from tests.randomness import generator

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
    with pytest.raises(RequestError, match="the body may have 3,145,728 bytes") as caught:
        read(gzip.compress(bytes((3 << 20) + 1)), b"gzip")
    assert caught.value.status == 413


@pytest.mark.parametrize("damaged", [gzip.compress(RANDOM)[:-9], gzip.compress(RANDOM)[:5000], b"", bytes(5000)])
def test_what_is_damaged_is_refused(damaged):
    with pytest.raises(RequestError, match=r"incomplete|not valid"):
        read(damaged, b"gzip")
