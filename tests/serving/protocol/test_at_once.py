"""Requests that are answered without a task get the bytes that those in a task get: the same are sent to both, in the same pieces."""

import gzip
import json
import socket
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest

pytest.importorskip("uvicorn")

from pytrtplugins.serving import Limits
from pytrtplugins.serving.protocol.app import App
from tests.serving.conftest import spec
from tests.serving.running import everything, running
from tests.serving.served import Slow

LIMITS = Limits(body_bytes=1 << 20, head_bytes=4096, head_seconds=5, body_seconds=5, headers=20, pipelined=4)
NAMES = ("double", "lists", "wrong", "shout", "files")
X = np.float32([[1, 2]])
END = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@contextmanager
def counted(patch, every):
    """A server; with ``every`` requests go to tasks. Beside it, what `App.at_once` said."""
    said, own = [], App.at_once

    def at_once(app, scope, whole):
        said.append(False if every else own(app, scope, whole))
        return said[-1]

    patch.setattr(App, "at_once", at_once)
    with running([spec(name, name.title()) for name in NAMES], LIMITS) as server:
        patch.undo()
        yield server, said


@pytest.fixture(scope="module")
def servers():
    with pytest.MonkeyPatch.context() as patch, counted(patch, False) as one, counted(patch, True) as other:
        yield one, other


def post(body, model="double", line=b"HTTP/1.1", **headers):
    lines = [b"POST /v2/models/%b/infer %b" % (model.encode(), line), b"Host: a"]
    headers = {"Content_Length": len(body), **headers}
    lines += [f"{name.replace('_', '-')}: {value}".encode() for name, value in headers.items() if value is not None]
    return b"\r\n".join([*lines, b"", b""]) + body


def binary(array=X, **options):
    return post(array.tobytes(), Inference_Header_Content_Length=0, **options)


def said(**request):
    return post(json.dumps(request).encode())


INPUT = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [3, 4]}
CHUNKED = b"4\r\n%b\r\n4\r\n%b\r\n0\r\n\r\n" % (X.tobytes()[:4], X.tobytes()[4:])
LARGE = np.zeros((32, 2), np.float32)
REQUESTS = {
    "bytes": (binary(), True),
    "bytes in lower case": (binary().replace(b"Inference-Header-Content-Length", b"inference-header-content-length"), True),
    "rows": (binary(LARGE), True),
    "too many rows": (binary(np.zeros((64, 2), np.float32)), True),
    "JSON": (said(inputs=[INPUT], id="é"), True),
    "JSON, bytes asked for": (said(inputs=[INPUT], parameters={"binary_data_output": True}), True),
    "a version": (binary().replace(b"double/infer", b"double/versions/1/infer"), True),
    "a deadline": (said(inputs=[INPUT], parameters={"timeout": 10_000_000}), True),
    "no JSON": (post(b"{"), True),
    "no body": (post(b""), True),
    "an input that is none": (said(inputs=[{**INPUT, "name": "z"}]), True),
    "too few bytes": (post(bytes(7), Inference_Header_Content_Length=0), True),
    "a head that is longer than the body": (post(bytes(8), Inference_Header_Content_Length=99), True),
    "a head's length that is no number": (post(bytes(8), Inference_Header_Content_Length="é"), True),
    "a model that raises": (binary(model="wrong"), True),
    "strings": (post(b"words", "shout", Inference_Header_Content_Length=0), True),
    "files": (post(b"words", "files", Inference_Header_Content_Length=0), True),
    "gzip": (post(gzip.compress(X.tobytes(), mtime=0), Content_Encoding="gzip", Inference_Header_Content_Length=0), False),
    "no gzip": (post(b"0123456789", Content_Encoding="gzip"), False),
    "another model": (binary(model="nothing"), False),
    "a query": (binary().replace(b"/infer", b"/infer?a=b"), True),
    "%-signs": (binary().replace(b"double", b"d%6Fuble"), True),
    "another method": (binary().replace(b"POST", b"PUT"), False),
    "HTTP/1.0": (binary(line=b"HTTP/1.0"), True),
    "the last": (binary(Connection="close"), True),
    "a body that may follow": (binary(Expect="100-continue"), False),
    "chunks": (post(CHUNKED, Content_Length=None, Transfer_Encoding="chunked", Inference_Header_Content_Length=0), True),
    "chunks and a length": (post(CHUNKED, Transfer_Encoding="chunked"), False),
    "two lengths": (post(X.tobytes(), Content_length=9), False),
    "too large": (post(b"", Content_Length=1 << 30), False),
    "another protocol": (binary(Upgrade="websocket", Connection="Upgrade"), True),
}  # fmt: skip


def ask(port, pieces):
    """All that comes back; between pieces the server has time to read."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(ConnectionError):
            for number, piece in enumerate(pieces):
                if number:
                    time.sleep(0.01)
                sock.sendall(piece)
        return everything(sock)


def both(servers, pieces):
    """What the first answers, once the other has answered the same; and how many requests it began at once."""
    (one, said), (other, _) = servers
    before = said.count(True)
    found, expected = ask(one.port, pieces), ask(other.port, pieces)
    assert found == expected
    return found, said.count(True) - before


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_gets_the_same_bytes(servers, request_name):
    data, at_once = REQUESTS[request_name]
    found, count = both(servers, [data + END])
    assert found.startswith(b"HTTP/1.1 ")
    assert count == at_once


@pytest.mark.parametrize("size", [1, 40, 105, 110])
def test_a_request_in_two_pieces_gets_the_same_bytes(servers, size):
    data = binary()
    found, count = both(servers, [data[:size], data[size:] + END])
    assert found.count(b"HTTP/1.1 200 OK") == 2
    assert count == (size < len(data) - 8)  # a body that comes later is received in a task


def test_requests_sent_ahead_are_answered_in_order(servers):
    many = [said(inputs=[INPUT], id=str(number)) for number in range(4)]
    found, count = both(servers, [b"".join(many) + END])
    assert [found.index(b'"id":"%d"' % number) for number in range(4)] == sorted(
        found.index(b'"id":"%d"' % number) for number in range(4)
    )
    assert (found.count(b" 200 OK"), count) == (5, 4)
    assert both(servers, [many[0] + b"no HTTP\r\n\r\n"])[0].endswith(b"Invalid HTTP request received.")
    assert b" 400 " in both(servers, [8 * many[0]])[0]  # more than may be sent ahead


def test_a_client_that_waits_to_be_told_that_it_may_send_is_told(servers):
    """Behind a request that was sent ahead, too."""
    waits = binary(Expect="100-continue")
    found, count = both(servers, [binary() + waits[:-8], waits[-8:] + END])
    assert (found.count(b" 100 Continue"), found.count(b" 200 OK"), count) == (1, 3, 1)


def test_an_answer_that_the_client_does_not_take_at_once_is_the_same(servers):
    """More than the kernel takes: the answer waits until the client reads."""
    data = binary(LARGE)
    assert both(servers, [data, *[data] * 30, END])[0].count(b" 200 OK") == 32


def test_a_client_that_is_gone_before_its_answer_harms_nobody(servers):
    (server, _), _ = servers
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), 20) as sock:
            sock.sendall(binary())
    assert both(servers, [binary() + END])[0].count(b" 200 OK") == 2


def test_what_was_begun_at_once_is_answered_before_the_server_ends(held):
    with (
        running([spec("slow", "Slow")], LIMITS) as server,
        socket.create_connection(("127.0.0.1", server.port), 20) as sock,
    ):
        sock.sendall(binary(model="slow"))
        assert Slow.entered.wait(20)
        server.end()
        while server.listens():
            time.sleep(0.01)
        Slow.go.set()
        found = everything(sock)
    assert found.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" in found
