"""Bad clients behind a port, with small limits: each is cut off, and the others are answered."""

import gzip
import re
import socket
import threading
import time
from contextlib import ExitStack, suppress
from http.client import HTTPResponse

import numpy as np
import pytest

from pytrtplugins.serving import Limits
from tests.randomness import generator
from tests.serving.conftest import spec
from tests.serving.http.bombs import gzip_of_zeros
from tests.serving.http.waiting import no_thread_to_decompress
from tests.serving.running import everything, running
from tests.serving.served import Slow

LIMITS = Limits(
    body_bytes=1 << 20,
    head_bytes=2048,
    head_seconds=0.2,
    body_seconds=0.2,
    headers=20,
    pipelined=4,
    connections=8,
    connections_per_address=6,
)
OK = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
POST = b"POST /v2/repository/index HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def server():
    with running([spec("double", "Double"), spec("slow", "Slow")], LIMITS) as made:
        yield made


@pytest.fixture(scope="module")
def patient_server():
    """A server whose clients have all the time that they need, however busy the machine is."""
    with running([spec("double", "Double")], Limits(body_bytes=LIMITS.body_bytes)) as made:
        yield made


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), 20)


def statuses(data):
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def drip(sock, data, every_s=0.02):
    """Send a byte at a time until the other end has had enough; all that it said."""
    try:
        for place in range(len(data)):
            sock.sendall(data[place : place + 1])
            time.sleep(every_s)
    except OSError:
        pass
    return everything(sock)


@pytest.mark.parametrize("data", [b"", b"GET", b"GET /v2 HTTP/1.1\r\nHost:", b"GET /v2 HTTP/1.1\r\nHost: a\r\n"])
def test_a_head_that_does_not_end_in_time_is_cut_off(server, data):
    assert server.sent(data) == b""
    with connect(server) as sock:
        sock.sendall(OK.replace(b"close", b"keep-alive"))
        assert statuses(sock.recv(4096)) == [200]
        sock.sendall(data or b"G")
        assert everything(sock) == b""


@pytest.mark.parametrize("data", [b"GET /v2 HTTP/1.1\r\nX: " + 5000 * b"a", b"\x16\x03\x01 nothing\r\n\r\n"])
def test_a_head_that_is_too_long_or_no_http_is_refused(server, data):
    assert statuses(server.sent(data)) == [400]


def test_a_head_that_drips_is_cut_off(server):
    with connect(server) as sock:
        assert drip(sock, b"GET /v2 HTTP/1.1\r\n" + 200 * b"X: 1\r\n") == b""


def test_a_body_that_drips_is_408_or_cut_off(server):
    with connect(server) as sock:
        assert statuses(drip(sock, POST + b"Content-Length: 900\r\n\r\n" + 900 * b" ", 0.005)) in ([], [408])


def test_a_client_is_not_cut_off_for_the_time_in_which_its_body_was_not_read():
    limits, spaces = Limits(body_seconds=0.6), generator(0).choice(list(b" \t\r\n"), 4 << 20).astype(np.uint8).tobytes()
    body = gzip.compress(b"1 2" + spaces, 1)
    assert len(body) > 1 << 20  # more than is read ahead
    head = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    with running([spec("double", "Double")], limits) as made, no_thread_to_decompress() as free, connect(made) as sock:
        sending = threading.Thread(target=sock.sendall, args=(head % len(body) + body[:-1],))
        sending.start()
        time.sleep(2 * limits.body_seconds)
        free.set()
        sending.join(20)
        time.sleep(limits.body_seconds / 2)
        sock.sendall(body[-1:])
        assert statuses(sock.recv(4096)) == [200]


def test_a_body_that_nobody_reads_is_cut_off_too(server):
    with connect(server) as sock:
        sock.sendall(b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
        assert statuses(everything(sock)) == [404]


@pytest.mark.parametrize("path", [b"/v2/models/double/infer", b"/v2/repository/index", b"/v1/models/double:predict"])
@pytest.mark.parametrize(
    ("lines", "body", "status"),
    [
        (b"Content-Encoding: gzip\r\nContent-Length: 1048576", gzip.compress(b"{}") + bytes(1 << 20), 400),
        (b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked", None, 413),
        (b"Content-Encoding: br\r\nContent-Length: 1048576", bytes(1 << 20), 415),
        (b"Content-Length: 99999999", bytes(99999999), 413),
    ],
    ids=["behind the end", "bomb", "unknown form", "too large"],
)
def test_a_client_that_still_sends_is_told_why_it_is_refused(patient_server, path, lines, body, status):
    body = chunk(gzip_of_zeros()) if body is None else body
    with connect(patient_server) as sock:
        with suppress(BrokenPipeError):  # not ConnectionResetError: clients look at their answer then
            sock.sendall(b"POST %b HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % (path, lines))
            sock.sendall(body)
        found = everything(sock)
    assert statuses(found) == [status]
    assert b"connection: close" in found


def test_a_client_that_does_not_read_its_answers_is_cut_off(server):
    """It asks slowly: requests that the server has no room for would be refused for their number."""
    with socket.socket() as sock, pytest.raises(ConnectionError):  # noqa: PT012
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(20)
        sock.connect(("127.0.0.1", server.port))
        for _ in range(1000):
            sock.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")
            time.sleep(0.01)


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4",
        b"Content-Length: 4\r\nContent-Length: 5",
        b"Content-Length: 4\r\nContent-Length: 4",
        b"Content-Length: +4",
        b"Content-Length: 4, 4",
        b"Content-Length : 4",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding:\x0bchunked",
        b"X: 1\r\n Transfer-Encoding: chunked",
        b"X: 1\nTransfer-Encoding: chunked",
        b"X: a\0b",
    ],
)
def test_a_body_whose_end_is_a_matter_of_opinion_is_refused(server, lines):
    smuggled = b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n"
    assert statuses(server.sent(POST + lines + b"\r\n\r\n0\r\n\r\n" + smuggled)) == [400]


@pytest.mark.parametrize(
    "chunk", [b"-1\r\n", b"0x4\r\nabcd", b"4\nabcd", b"4 \r\nabcd", b"fffffffffffffffff\r\n", b"g\r\n"]
)
def test_a_chunk_of_unclear_size_is_refused(server, chunk):
    assert statuses(server.sent(CHUNKED + chunk + b"\r\n0\r\n\r\n" + OK))[:1] == [400]


def test_http_1_0_has_no_chunks(server):
    head = CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0")
    assert statuses(server.sent(head + b"0\r\n\r\n" + OK)) == [400]


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
def test_what_follows_a_request_for_another_protocol_is_no_request(server, upgrade):
    head = POST + b"Connection: Upgrade\r\nUpgrade: %b\r\nContent-Length: %d\r\n\r\n" % (upgrade, len(OK))
    with connect(server) as sock:
        sock.sendall(head)
        time.sleep(0.05)  # the rest comes by itself
        sock.sendall(OK)
        assert len(statuses(everything(sock))) == 1


def test_too_many_headers_are_refused(server):
    assert statuses(server.sent(OK[:-2] + 17 * b"X: 1\r\n" + b"\r\n")) == [200]
    assert statuses(server.sent(OK[:-2] + 19 * b"X: 1\r\n" + b"\r\n")) == [400]


@pytest.mark.parametrize("extra", [b"1;" + 5000 * b"a", b"0\r\n" + 1000 * b"X: 1\r\n", b"0\r\nX: " + 5000 * b"1"])
def test_names_of_chunks_and_trailers_are_limited_as_heads_are(server, extra):
    with connect(server) as sock:
        sock.sendall(CHUNKED + b"1\r\n \r\n")
        time.sleep(0.02)
        for place in range(0, len(extra), 1000):
            try:
                sock.sendall(extra[place : place + 1000])
            except OSError:
                break
            time.sleep(0.01)
        assert statuses(everything(sock)) == []


def test_requests_that_are_sent_ahead_are_answered_in_order_up_to_a_limit(server):
    ask = b"GET /v2/models/%b HTTP/1.1\r\nHost: a\r\n\r\n"
    some = b"".join(ask % name for name in (b"double", b"nothing", b"double")) + OK
    assert statuses(server.sent(some)) == [200, 404, 200, 200]
    assert 400 in statuses(server.sent(7 * (ask % b"double")))


def answered(sock):
    sock.sendall(OK.replace(b"close", b"keep-alive"))
    response = HTTPResponse(sock)
    response.begin()
    response.read()  # all of it, which may come in several parts
    return response.status == 200


def test_the_connection_that_was_silent_longest_makes_room():
    with running([spec("double", "Double")], Limits(connections=2)) as small:
        with connect(small) as asked, connect(small) as silent:
            assert answered(asked)
            with connect(small) as third:
                assert everything(silent) == b""  # closed
                assert answered(third)
                assert answered(asked)
        with connect(small) as one, connect(small) as other:
            assert answered(one)
            assert answered(other)
            with connect(small) as third:
                assert statuses(everything(third)) == [503]
            assert answered(one)
            assert answered(other)
        with connect(small) as later:
            assert answered(later)


def test_connections_that_ask_nothing_make_room_and_others_are_told_503(server, held):
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(20)]
        assert statuses(server.sent(OK)) == [200]
        assert any(not everything(each) for each in silent)
    body = b'{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}'
    ask = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
    with ExitStack() as stack:
        busy = [stack.enter_context(connect(server)) for _ in range(LIMITS.connections_per_address)]
        for each in busy:
            each.sendall(ask % (len(body), body))
        assert Slow.entered.wait(20)
        found = b""
        while b" 503 " not in found:  # until the last of them has asked
            found = server.sent(b"")
        assert b"retry-after: 1" in found
        Slow.go.set()
        assert [statuses(everything(each)) for each in busy] == len(busy) * [[200]]
    assert statuses(server.sent(OK)) == [200]


def test_bad_clients_do_not_delay_good_ones(server):
    with ExitStack() as stack:
        for data in (b"GET", b"\x16\x03\x01", POST + b"Content-Length: 5\r\n\r\n"):
            stack.enter_context(connect(server)).sendall(data)
        threads = [threading.Thread(target=server.sent, args=(b"\0" * 100,)) for _ in range(2)]
        for each in threads:
            each.start()
        assert statuses(server.sent(OK)) == [200]
        for each in threads:
            each.join(20)
