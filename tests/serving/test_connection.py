"""Connections beyond the limit: who only connects makes room for others."""

from __future__ import annotations

import socket

import pytest

from pytrtplugins.serving import Limits
from tests.serving.conftest import spec
from tests.serving.running import everything, running

ASK = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def server():
    with running([spec("double", "Double")], Limits(connections=2)) as found:
        yield found


def connected(server):
    return socket.create_connection(("127.0.0.1", server.port), 20)


def answered(sock):
    sock.sendall(ASK)
    return sock.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_the_connection_that_was_silent_longest_makes_room(server):
    with connected(server) as asked, connected(server) as silent:
        assert answered(asked)
        with connected(server) as third:
            assert everything(silent) == b""  # closed
            assert answered(third)
            assert answered(asked)


def test_where_all_others_have_asked_the_new_one_is_closed(server):
    with connected(server) as one, connected(server) as other:
        assert answered(one)
        assert answered(other)
        with connected(server) as third:
            assert everything(third) == b""
        assert answered(one)
        assert answered(other)
    with connected(server) as later:
        assert answered(later)
