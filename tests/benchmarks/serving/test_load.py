"""Requests from planned times on, and what becomes of them."""

import multiprocessing
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from benchmarks.serving.load import Clients, Exchange, Load, Outcome, same, send
from benchmarks.serving.servers import ask, post

SLOW_S = 0.02


@contextmanager
def server():
    """Answers a body with itself; "slow" after a while, "gone" not at all, "refused" with 429."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    sock, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(sock,), daemon=True).start()

        def answer(sock):
            with sock:
                while data := sock.recv(1 << 16):
                    while not data.partition(b"\r\n\r\n")[2]:
                        data += sock.recv(1 << 16)
                    body = data.partition(b"\r\n\r\n")[2]
                    if body == b"gone":
                        return
                    if body == b"slow":
                        time.sleep(SLOW_S)
                    status = b"429 No" if body == b"refused" else b"200 OK"
                    sock.sendall(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def exchange(body, expected=None):
    return Exchange(post("/", body), body if expected is None else expected)


def test_each_answer_is_compared_and_counted():
    kinds = [exchange(b"good"), exchange(b"good", b"other"), exchange(b"refused"), exchange(b"gone")]
    with server() as port:
        found = send(Load(port, kinds, 0.6, connections=1))
    rounds = found.wrong[429]
    assert rounds > 0
    assert {200, 429} == set(found.wrong)
    assert found.sent == len(found.latencies_s) + sum(found.wrong.values()) + found.lost
    assert found.lost in (rounds, rounds + 1, rounds - 1)


def test_a_request_that_waits_for_a_connection_is_late_from_its_planned_time_on():
    with server() as port:
        found = send(Load(port, [exchange(b"slow")], 0.1, connections=1, rate=200.0))
    assert found.lost == 0
    assert found.sent == len(found.latencies_s) > 5
    assert found.latencies_s.max() > SLOW_S * found.sent - 0.1  # the last one waited for all others


def test_the_times_of_a_load_are_those_of_its_seed_and_on_average_its_rate():
    with server() as port:
        loads = [Load(port, [exchange(b"x")], 0.5, connections=4, rate=400.0, seed=seed) for seed in (1, 1, 2)]
        counts = [send(load).sent for load in loads]
    assert counts[0] == counts[1]
    assert 130 < counts[2] < 270


def test_a_body_in_parts_is_read_whole_and_an_error_is_told():
    with server() as port:
        assert ask(port, post("/", bytes(10))) == bytes(10)
        with pytest.raises(ValueError, match="429"):
            ask(port, post("/", b"refused"))


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [
        (b"a", b"a", True),
        (b"a", b"b", False),
        (b'{"x": [1.00001]}', b'{"x": [1.0]}', True),
        (b'{"x": [1.01]}', b'{"x": [1.0]}', False),
        (b'{"x": 1}', b'{"x": 1, "y": 2}', False),
        (b"[1, 2]", b"[1]", False),
        (b'"cat"', b'"dog"', False),
    ],
)
def test_answers_are_the_same_where_their_numbers_nearly_are(found, expected, equal):
    assert same(found, expected) == equal


def test_clients_beside_each_other_are_joined():
    parts = [Outcome(np.array([0.1, 0.2]), 1.0, 3, lost=1), Outcome(np.array([0.3]), 2.0, 1)]
    joined = Outcome.joined(parts)
    assert (joined.sent, joined.lost, joined.seconds, joined.rate) == (4, 1, 2.0, 1.5)
    assert joined.quantile_ms(1) == pytest.approx(300)
    assert np.isnan(Outcome().quantile_ms(0.5))


def test_what_ends_a_benchmark_ends_the_clients_that_nobody_waits_for():
    def end():
        with Clients(2) as clients:
            clients.call(time.sleep, 100)
            raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        end()
    assert time.monotonic() - begin < 60
    assert not multiprocessing.active_children()
