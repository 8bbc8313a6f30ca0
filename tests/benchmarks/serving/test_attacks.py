"""What bad clients send, when it is made, and what stands in their place."""

import gzip
import socket
import threading
from contextlib import contextmanager
from functools import cache

import pytest

from benchmarks.serving import attacks
from benchmarks.serving.load import Clients
from benchmarks.serving.servers import free_port, post

BOMB = "gzip bombs of 1 GiB"


def test_what_takes_seconds_to_make_is_made_once_before_an_attack_begins(monkeypatch):
    made = []
    bomb = cache(lambda: made.append(1) or post("/", b"bomb"))
    monkeypatch.setattr(attacks, "_gzip_bomb", bomb)
    monkeypatch.setitem(attacks._MADE, BOMB, bomb)
    monkeypatch.setattr(attacks.os, "nice", lambda by: 19)
    prepared = attacks.prepare(BOMB)
    assert made == [1]
    assert (prepared.sent, prepared.cpu_s) == (0, 0.0)  # nothing was sent, and nothing counts
    with refusing() as port:
        found = attacks.run(BOMB, port, free_port(), 0.1)
    assert made == [1]
    assert found.sent == found.wrong[413] > 0


def test_only_what_takes_seconds_to_make_is_prepared():
    assert attacks._MADE.keys() < attacks.ATTACKS.keys()
    others = attacks.ATTACKS.keys() - attacks._MADE.keys()
    assert [attacks.prepare(name).sent for name in others] == [0] * len(others)


def test_an_attack_finds_what_was_made_in_the_process_that_it_runs_in():
    with Clients(1) as attacker:
        attacker.call(attacks.prepare, "60 MiB behind the end of gzip data").result()
        assert attacker.call(_tails).result() == 1


def _tails():
    return attacks._gzip_tail.cache_info().currsize


def test_data_behind_the_end_stand_behind_whole_gzip_data():
    head, _, body = attacks._gzip_tail().partition(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"
    assert body.endswith(bytes(60 << 20))
    assert gzip.decompress(body[: -(60 << 20)]) == bytes(2000)


@contextmanager
def refusing():
    """Answers whatever it is sent with 413."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    sock, _ = listening.accept()
                except OSError:
                    return
                with sock:
                    sock.recv(1 << 16)
                    sock.sendall(b"HTTP/1.1 413 Too Large\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_what_stands_for_bad_clients_takes_their_share_of_a_core(share, monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(attacks, "time", clock)
    monkeypatch.setattr(attacks.os, "nice", lambda by: 19)
    found = attacks.burn(share, 2.0)
    assert found.cpu_s / found.seconds == pytest.approx(share, abs=0.01)
    assert found.sent == 0


class FakeClock:
    """Time that passes when somebody looks at it, or sleeps."""

    def __init__(self):
        self.now = self.cpu = 0.0

    def monotonic(self):
        return self.now

    def process_time(self):
        self.now += 0.00001
        self.cpu += 0.00001
        return self.cpu

    def sleep(self, seconds):
        self.now += seconds
