"""Requests that a client sends ahead of their answers: these come in order, and what is broken is told behind them."""

import json
import random
import re

import pytest

from pytrtplugins.serving import Limits
from tests.serving.conftest import spec
from tests.serving.running import running

pytest.importorskip("httptools")

LIMITS = Limits(body_bytes=1 << 20, head_bytes=4096, pipelined=16, headers=16)
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def server():
    with running([spec("double", "Double")], LIMITS) as found:
        yield found


def infer(number, head=b""):
    body = json.dumps(
        {"id": str(number), "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [number, 0]}]}
    )
    return b"POST /v2/models/double/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%b\r\n%b" % (
        len(body),
        head,
        body.encode(),
    )


def chunked(number, damage=b""):
    body = infer(number).partition(b"\r\n\r\n")[2]
    lines = b"%x\r\n%b\r\n" % (len(body), body) + (damage or b"0\r\n\r\n")
    return b"POST /v2/models/double/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + lines


def statuses(sent):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", sent)]


def ids(sent):
    return [int(found) for found in re.findall(rb'"id":\s?"(\d+)"', sent)]


def test_more_than_may_be_sent_ahead_are_answered_in_order_up_to_the_limit_and_then_refused(server):
    sent = server.sent(b"".join(map(infer, range(200))))
    assert statuses(sent) == [200] * 17 + [400]  # one is computed, 16 wait
    assert ids(sent) == list(range(17))
    assert sent.endswith(b"A client may send 16 requests ahead of their answers.")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (b"\x01\x02\r\n\r\n", b"Invalid HTTP request received."),
        (b"GET / HTTP/1.1\r\n\r\n", b"The header host is missing."),
        (infer(7, b"Content-Length: 3\r\n"), b""),
        (chunked(7, b"zz\r\n"), b"Invalid HTTP request received."),
        (LIVE.replace(b"Host: a", b"Host: a\r\nX: " + b"a" * 5000), b"The head of a request may have 4096 bytes."),
    ],
)
def test_a_broken_request_is_told_behind_the_answers_to_those_before_it(server, broken, words):
    sent = server.sent(infer(1) + LIVE + infer(2) + broken + infer(3))
    assert statuses(sent) == [200, 200, 200, 400]
    assert ids(sent) == [1, 2]
    assert sent.endswith(words)


def test_requests_of_all_kinds_are_answered_in_order_up_to_the_first_broken_one(server):
    rng = random.Random(0)
    for _ in range(60):
        count = rng.randint(1, 12)
        parts = [rng.choice((infer, chunked))(number) if rng.random() < 0.7 else LIVE for number in range(count)]
        end = rng.choice((LAST, b"NONSENSE\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"))
        sent = server.sent(b"".join(parts) + end)
        assert statuses(sent) == [200] * count + [200 if end is LAST else 400]
        wanted = [number for number, part in enumerate(parts) if part is not LIVE]
        assert ids(sent) == wanted


@pytest.mark.parametrize(
    ("head", "status", "words"),
    [
        (b"GET /v2/health/live HTTP/1.1\r\n", 400, b"The header host is missing."),
        (b"GET /v2/health/live HTTP/1.0\r\n", 200, b""),
        (b"GET /v2/health/live\r\n", 400, b"HTTP/0.9 is not spoken here; HTTP/1.1 is."),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: a b\r\n", 400, b"The header host is no name of a host."),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n", 200, b""),
        (
            b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n",
            400,
            b"The only Transfer-Encoding that is understood here is chunked.",
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n", 400, b"Invalid HTTP request received."),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400, b"The header host is there 2 times."),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nHost: a\r\n", 400, b"The header host is there 2 times."),
        (
            b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n",
            400,
            b"The header authorization is there 2 times.",
        ),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 3900 + b"\r\nConnection: close\r\n", 200, b""),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 4096 + b"\r\n", 400, b"may have 4096 bytes."),
        (b"GET /v2/health/live?" + b"a" * 4096 + b" HTTP/1.1\r\nHost: a\r\n", 400, b"may have 4096 bytes."),
    ],
)
def test_heads_are_taken_as_the_standard_says(server, head, status, words):
    sent = server.sent(head + b"\r\n")
    assert statuses(sent) == [status]
    assert sent.endswith(words)


@pytest.mark.parametrize(("size", "status"), [(4096, 200), (4097, 400)])
def test_a_head_may_have_exactly_as_many_bytes_as_the_limit_says(server, size, status):
    begin, end = LAST[:-2] + b"X: ", b"\r\n\r\n"
    assert statuses(server.sent(begin + b"a" * (size - len(begin) - len(end)) + end)) == [status]


@pytest.mark.parametrize(("count", "status"), [(16, 200), (17, 400)])
def test_a_request_may_have_exactly_as_many_headers_as_the_limit_says(server, count, status):
    headers = b"".join(b"X-%d: 1\r\n" % number for number in range(count - 2))  # beside Host and Connection
    assert statuses(server.sent(LAST[:-2] + headers + b"\r\n")) == [status]


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_line_without_a_version_is_refused_at_once(server, end):
    """A client of HTTP/0.9 sends nothing else, and waits."""
    sent = server.sent(b"GET /v2/health/live" + end, wait_s=5)  # a head that does not end is cut off after ten
    assert (statuses(sent), sent.endswith(b"HTTP/0.9 is not spoken here; HTTP/1.1 is.")) == ([400], True)
