"""Requests over HTTP from processes of their own: at planned times (open loop), or each once the last is answered (closed loop)."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

_GRACE_S = 20.0  # for the last answers
_AGAIN_S = 0.05  # until a connection that broke is made again
_NEAR = 1e-3  # of the numbers in JSON, which depend a little on what was computed together


@dataclass(frozen=True)
class Exchange:
    """A request and the answer that is expected.

    Attributes:
        request: Line, headers and body.
        body: Of the answer; None: any.
        status: Of the answer.
    """

    request: bytes
    body: bytes | None = None
    status: int = 200


@dataclass(frozen=True)
class Load:
    """What a client sends.

    Attributes:
        port: On this machine.
        exchanges: Taken in turn.
        seconds: How long requests are sent.
        connections: At most so many are open; each has one request at a time.
        rate: Requests a second, at times that are random as those of independent clients are; None: closed loop.
        seed: Of the times.
    """

    port: int
    exchanges: Sequence[Exchange]
    seconds: float
    connections: int = 16
    rate: float | None = None
    seed: int = 1


@dataclass
class Outcome:
    """What became of a load.

    Attributes:
        latencies_s: Of each right answer, from the planned time on: waiting for a free connection counts.
        seconds: From the first request to the last answer.
        sent: Requests.
        wrong: Answers that were not as expected, by their status.
        lost: Requests without an answer.
        cpu_s: Of the client's processes.
    """

    latencies_s: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    seconds: float = 0.0
    sent: int = 0
    wrong: Counter[int] = field(default_factory=Counter)
    lost: int = 0
    cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Right answers a second."""
        return len(self.latencies_s) / self.seconds if self.seconds else 0.0

    def quantile_ms(self, part: float) -> float:
        """The latency that so many do not exceed; NaN where nothing was answered."""
        return 1e3 * float(np.quantile(self.latencies_s, part)) if len(self.latencies_s) else float("nan")

    @staticmethod
    def joined(parts: Sequence[Outcome]) -> Outcome:
        """Of several clients that ran side by side."""
        return Outcome(
            np.concatenate([part.latencies_s for part in parts]),
            max(part.seconds for part in parts),
            sum(part.sent for part in parts),
            sum((part.wrong for part in parts), Counter()),
            sum(part.lost for part in parts),
            sum(part.cpu_s for part in parts),
        )


class Clients:
    """Processes that send loads."""

    def __init__(self, count: int) -> None:
        self._pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))
        list(self._pool.map(abs, range(count)))  # they are there before anything is measured

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # nobody waits for what they find
            for process in multiprocessing.active_children():
                process.terminate()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, load: Load) -> Future[Outcome]:
        """Send a load from the next process that is free."""
        return self.call(send, load)

    def call(self, function: Callable[..., Outcome], *arguments: object) -> Future[Outcome]:
        """Call another client in the next process that is free."""
        return self._pool.submit(function, *arguments)

    def run(self, load: Load) -> Outcome:
        """Send a load, and wait until it is over."""
        return self.begin(load).result()


def send(load: Load) -> Outcome:
    """Send a load from this process."""
    return _Client(load).run()


class _Connection:
    __slots__ = ("expected", "head", "length", "planned", "received", "sock", "unsent")

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.expected: Exchange | None = None
        self.planned = 0.0
        self.unsent, self.received, self.head, self.length = memoryview(b""), b"", b"", 0

    def begin(self, exchange: Exchange, planned: float) -> None:
        self.expected, self.planned, self.received = exchange, planned, b""
        self.unsent = memoryview(exchange.request)

    def write(self) -> bool:
        """Send what the socket takes; whether all is sent."""
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
        return not self.unsent

    def read(self) -> tuple[int, bytes] | None:
        """The answer's status and body, once all is there."""
        data = self.sock.recv(1 << 18)
        if not data:
            raise ConnectionError
        self.received = self.received + data if self.received else data
        if not self.head or not self.received.startswith(self.head):  # answers mostly have the same head
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return None
            self.head = self.received[: end + 4]
            self.length = _length(self.head)
        start = len(self.head)
        if len(self.received) < start + self.length:
            return None
        return int(self.head[9:12]), self.received[start : start + self.length]


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    raise ValueError(f"an answer without Content-Length: {head[:200]!r}")


class _Client:
    def __init__(self, load: Load) -> None:
        self.load, self.outcome = load, Outcome()
        self.latencies: list[float] = []
        self.polled = select.epoll()
        self.idle: list[_Connection] = []
        self.busy: dict[int, _Connection] = {}
        self.broken: list[float] = []  # when to connect again
        self.random = random.Random(load.seed)

    def run(self) -> Outcome:
        load = self.load
        for _ in range(load.connections):
            self._connect()
        cpu, begun = time.process_time(), time.perf_counter()
        end, planned, turn = begun + load.seconds, begun, 0
        while True:
            now = time.perf_counter()
            while self.idle and planned < end and (load.rate is None or planned <= now):
                if load.rate is None and now >= end:
                    planned = end
                    break
                self._begin(load.exchanges[turn % len(load.exchanges)], now if load.rate is None else planned)
                turn += 1
                planned = now if load.rate is None else planned + self.random.expovariate(load.rate)
            if planned >= end and not self.busy:
                break
            if now > end + _GRACE_S:
                break
            if self.broken and self.broken[0] <= now:
                self.broken.pop(0)
                self._connect()
            wait = planned - now if self.idle and planned < end else 0.1
            self._step(max(0.0, min(wait, 0.1)))
            if load.rate is None and time.perf_counter() >= end:
                planned = end
        found = self.outcome
        found.lost += len(self.busy)
        found.seconds = time.perf_counter() - begun
        found.cpu_s = time.process_time() - cpu
        found.latencies_s = np.array(self.latencies)
        for connection in (*self.idle, *self.busy.values()):
            connection.sock.close()
        return found

    def _connect(self) -> None:
        try:
            made = _Connection(self.load.port)
        except OSError:
            self.broken.append(time.perf_counter() + _AGAIN_S)
            return
        self.polled.register(made.sock, select.EPOLLIN)
        self.idle.append(made)

    def _begin(self, exchange: Exchange, planned: float) -> None:
        connection = self.idle.pop()
        self.outcome.sent += 1
        self.busy[connection.sock.fileno()] = connection
        connection.begin(exchange, planned)
        try:
            if not connection.write():
                self.polled.modify(connection.sock, select.EPOLLIN | select.EPOLLOUT)
        except OSError:
            self._lost(connection)

    def _step(self, wait_s: float) -> None:
        """Wait until something happens; select(2) waits to the microsecond, epoll_wait to the millisecond."""
        happened = self.polled.poll(0)
        if not happened and wait_s:
            select.select([self.polled], [], [], wait_s)
            happened = self.polled.poll(0)
        for descriptor, events in happened:
            connection = self.busy.get(descriptor)
            if connection is None:  # one that waits for its next request was closed by the server
                self._closed(descriptor)
                continue
            try:
                if events & select.EPOLLOUT and connection.write():
                    self.polled.modify(connection.sock, select.EPOLLIN)
                if events & ~select.EPOLLOUT:
                    self._read(connection)
            except OSError:
                self._lost(connection)

    def _read(self, connection: _Connection) -> None:
        answer = connection.read()
        if answer is None:
            return
        expected = connection.expected
        assert expected is not None
        if answer[0] == expected.status and (expected.body is None or same(answer[1], expected.body)):
            self.latencies.append(time.perf_counter() - connection.planned)
        else:
            self.outcome.wrong[answer[0]] += 1
        del self.busy[connection.sock.fileno()]
        if connection.unsent or b"connection: close" in connection.head.lower():
            self._drop(connection)
        else:
            self.idle.append(connection)

    def _lost(self, connection: _Connection) -> None:
        self.outcome.lost += 1
        del self.busy[connection.sock.fileno()]
        self._drop(connection)

    def _closed(self, descriptor: int) -> None:
        for connection in [each for each in self.idle if each.sock.fileno() == descriptor]:
            self.idle.remove(connection)
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self.polled.unregister(connection.sock)
        connection.sock.close()
        self.broken.append(time.perf_counter() + _AGAIN_S)


def same(found: bytes, expected: bytes) -> bool:
    """Whether two answers say the same: the same bytes, or JSON whose numbers are nearly the same."""
    if found == expected:
        return True
    try:
        return _near(json.loads(found), json.loads(expected))
    except ValueError:
        return False


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, (int, float)):
        return abs(one - other) <= _NEAR * max(1.0, abs(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_near, one, other))
    return bool(one == other)
