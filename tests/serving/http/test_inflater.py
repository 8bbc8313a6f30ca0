"""Compressed bodies in parts: what they become, what is kept meanwhile, and when one is refused."""

import gzip
import zlib

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.http import inflater as module
from pytrtplugins.serving.http.inflater import Inflater
from tests.randomness import generator

MOST, SMALL = 16 << 20, 4 << 20
RANDOM = generator(0).bytes(100_000)


def parts(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


def written(data, coding=b"gzip", size=1000, most=MOST):
    inflater = Inflater(coding, most)
    for part in parts(data, size):
        inflater.write(part)
    return inflater.end()


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize(
    "data", [b"", b"x", 20 * RANDOM[:1000], bytes(300_000)], ids=["empty", "byte", "some", "zeros"]
)
def test_parts_come_out_as_they_were(data, size):
    assert written(gzip.compress(data), b"gzip", size) == data
    assert written(zlib.compress(data), b"deflate", size) == data


@pytest.mark.parametrize("more", [-1, 0, 1, 5 << 20])
@pytest.mark.parametrize(
    "unit", [RANDOM, bytes(1000), RANDOM[:100] + bytes(900)], ids=["random", "zeros", "some zeros"]
)
def test_what_is_large_comes_out_as_it_was(unit, more):
    data = (unit * ((SMALL + more) // len(unit) + 1))[: SMALL + more]
    for size in 1000, 1 << 20:
        assert written(gzip.compress(data, 1), size=size) == data


def test_what_grows_takes_no_memory_before_it_is_known_to_be_allowed():
    inflater, most = Inflater(b"gzip", MOST), 0
    for part in parts(gzip.compress(bytes(MOST)), 500):
        inflater.write(part)
        most = max(most, inflater.held)
    assert most < SMALL + (1 << 18)
    assert inflater.held == len(gzip.compress(bytes(MOST)))
    assert inflater.end() == bytes(MOST)


def test_what_hardly_grows_is_decompressed_once():
    data = RANDOM * 100
    inflater, compressed = Inflater(b"gzip", MOST), gzip.compress(data, 1)
    for part in parts(compressed, 1 << 16):
        inflater.write(part)
    assert inflater.held == len(compressed) + len(data)
    assert inflater.end() == data


def test_a_bomb_is_refused_in_the_part_that_makes_it_too_large():
    inflater, compressed = Inflater(b"gzip", 1 << 20), gzip.compress(bytes(16 << 20))
    allowed = len(compressed) // 17  # a sixteenth would be just too large
    inflater.write(compressed[:allowed])
    with pytest.raises(RequestError, match="request size exceeds the maximum allowed value of 1048576 bytes") as caught:
        inflater.write(compressed[allowed : 2 * allowed])
    assert caught.value.status == 413


def test_the_cpu_is_offered_to_others_within_one_part(monkeypatch):
    offered = []
    monkeypatch.setattr(module, "_yield", lambda: offered.append(True))
    monkeypatch.setattr(module, "_TURN_S", -1.0)
    data = bytes(MOST)
    assert written(gzip.compress(data), size=1 << 20) == data
    assert len(offered) >= MOST >> 17


def test_more_compressed_bytes_than_a_body_may_have_are_refused():
    stored = zlib.compress(RANDOM, 0)
    assert len(stored) > len(RANDOM)
    with pytest.raises(RequestError, match="request size exceeds the maximum allowed value of 100000 bytes") as caught:
        written(stored, b"deflate", 1 << 16, len(RANDOM))
    assert caught.value.status == 413


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_what_stands_behind_the_end_is_refused_in_the_part_that_has_it(size):
    inflater, body = Inflater(b"gzip", MOST), gzip.compress(b"x")
    for part in parts(body, size):
        inflater.write(part)
    with pytest.raises(RequestError, match="something behind the end of its gzip data") as caught:
        inflater.write(b"\0")
    assert caught.value.status == 400
    with pytest.raises(RequestError, match="something behind the end"):
        Inflater(b"gzip", MOST).write(body + bytes(1 << 20))


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_several_parts_of_gzip_data_are_one_body(size):
    inflater, body = Inflater(b"gzip", MOST), b"".join(map(gzip.compress, (b"a" * 100, b"", RANDOM[:1000])))
    for part in parts(body, size):
        inflater.write(part)
    assert inflater.end() == gzip.decompress(body) == b"a" * 100 + RANDOM[:1000]


def test_a_bomb_in_several_parts_is_whole():
    body = gzip.compress(bytes(8 << 20)) * 2
    assert written(body, most=32 << 20) == bytes(16 << 20)


def test_many_parts_and_parts_of_deflate_are_refused():
    with pytest.raises(RequestError, match="the body has more than 1,000 parts of gzip data"):
        Inflater(b"gzip", MOST).write(gzip.compress(b"") * 1001)
    with pytest.raises(RequestError, match="something behind the end"):
        Inflater(b"deflate", MOST).write(zlib.compress(b"x") * 2)


def test_an_empty_part_behind_the_end_is_allowed():
    assert written(gzip.compress(b"x")) == b"x"
    inflater = Inflater(b"gzip", MOST)
    inflater.write(gzip.compress(b"x"))
    inflater.write(b"")
    assert inflater.end() == b"x"


@pytest.mark.parametrize(
    ("data", "coding", "status", "message"),
    [
        *((data, b"gzip", 400, "the body is incomplete gzip data")
          for data in (b"", gzip.compress(RANDOM)[:-1], gzip.compress(RANDOM)[:500])),
        (bytes(5000), b"deflate", 400, "the body is not valid deflate data"),
        (b"", b"br", 415, "the Content-Encoding is 'br'; send the body as gzip, as deflate or as it is"),
        *((b"", coding, 415, "Unsupported compression type: the Content-Encoding is")
          for coding in (b"br", b"gzip, gzip", b"x" * 100)),
    ],
    ids=range(8),
)  # fmt: skip
def test_what_ends_too_early_is_damaged_or_has_another_form_is_refused(data, coding, status, message):
    with pytest.raises(RequestError, match=message) as caught:
        written(data, coding)
    assert (caught.value.status, len(str(caught.value)) < 150) == (status, True)


def test_the_name_of_a_form_may_be_in_capitals():
    assert written(gzip.compress(b"x"), b"GZIP") == b"x"
