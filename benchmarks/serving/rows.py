"""What is measured of a server: that its answers are right, its largest rate, its latencies below that, CPU, memory, cold start."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .closed import CONNECTIONS, saturated
from .load import Clients, Exchange, Load, Outcome, same
from .servers import Command, Server

SHARES = (0.5, 0.8, 0.95)
"""Of the largest rate: where latencies are measured."""
ENOUGH = 0.95
"""Of the planned rate: a server that answers fewer requests has fallen behind."""
PAGE = "serving_benchmarks"
PACKAGES = ("pytrtplugins", "uvicorn", "uvloop", "httptools", "openvino", "numpy")
_WARM_S = 1.0
_OPEN_CONNECTIONS = 64


@dataclass
class Row:
    """A server with one kind of request.

    Attributes:
        server: Its name.
        kind: Of requests.
        version: Of the server.
        reason: Why there is no measurement.
        cold_s: From its start to the first answer.
        rate: Requests a second with 16 connections that always ask: the largest.
        cpu_us: CPU of all its processes for a request, at that rate.
        engine_us: The part of its engine processes in ``cpu_us``; 0: not measured.
        client_us: The same of what asks; it is not in ``cpu_us``.
        cores: That each of its processes took at that rate, the busiest first, by role; empty: not measured.
        p50_ms: Latency at that rate; None: not measured.
        p99_ms: The same.
        pss_mib: Memory of all its processes after that.
        processes: How many it has.
        open: At shares of the largest rate, with requests at random times: planned and reached rate, whether it fell behind, p50_ms,
            p99_ms, wrong, lost.
    """

    server: str
    kind: str
    version: str = ""
    reason: str = ""
    cold_s: float = 0.0
    rate: float = 0.0
    cpu_us: float = 0.0
    engine_us: float = 0.0
    client_us: float = 0.0
    cores: dict[str, list[float]] = field(default_factory=dict)
    p50_ms: float | None = 0.0
    p99_ms: float | None = 0.0
    pss_mib: float = 0.0
    processes: int = 0
    open: list[dict[str, Any]] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Asked:
    """What a server is asked.

    Attributes:
        exchanges: Requests; their answers where these are known.
        right: Whether the answer to the request of a number is right; None: it must be the exchange's.
    """

    exchanges: Sequence[Exchange]
    right: Callable[[int, bytes], bool] | None = None


def short(row: Row) -> str:
    """A row in a line."""
    return f"{row.server}, {row.kind}: {row.reason or f'{row.rate:,.0f}/s, {row.cpu_us:,.0f} µs'}"


def in_time(rows: Iterator[Row], seconds: float) -> Iterator[Row]:
    """Rows until the time is over; the row that has begun then is the last one."""
    until = time.monotonic() + seconds
    for row in rows:
        yield row
        if time.monotonic() > until:
            print(f"the rest is left out: {seconds:g} s are over", file=sys.stderr)
            return


def measure(command: Command, version: str, kinds: dict[str, Asked], clients: Clients, seconds: float) -> Iterator[Row]:
    """Measure a server with each kind of request; a row that cannot be had says why."""
    first = next(iter(kinds.values()))
    try:
        with Server(command, Exchange(first.exchanges[0].request)) as server:
            for kind, asked in kinds.items():
                try:
                    yield _row(server, version, kind, asked, clients, seconds)
                except Exception as error:
                    yield Row(command.name, kind, version, f"{type(error).__name__}: {str(error)[:300]}")
    except Exception as error:
        for kind in kinds:
            yield Row(command.name, kind, version, f"{type(error).__name__}: {str(error)[:300]}")


def _row(server: Server, version: str, kind: str, asked: Asked, clients: Clients, seconds: float) -> Row:
    exchanges = checked(server, asked)
    clients.run(Load(server.port, exchanges, _WARM_S, CONNECTIONS))
    row = Row(server.command.name, kind, version, cold_s=server.cold_s)
    before = server.cpu_s()
    best = saturated(server.port, exchanges, clients, seconds)
    row.cpu_us = 1e6 * (server.cpu_s() - before) / best.answers
    row.client_us = 1e6 * best.cpu_s / best.answers
    row.rate, row.p50_ms, row.p99_ms = best.answers / best.seconds, best.p50_ms, best.p99_ms
    for share in SHARES:
        load = Load(server.port, exchanges, seconds, _OPEN_CONNECTIONS, share * row.rate)
        row.open.append(_opened(share, load, clients.run(load)))
    row.pss_mib, row.processes = server.pss_bytes() / (1 << 20), len(server.pids())
    return row


def _opened(share: float, load: Load, found: Outcome) -> dict[str, Any]:
    return {
        "share": share,
        "planned": load.rate,
        "rate": found.rate,
        "fell_behind": found.rate < ENOUGH * (load.rate or 0.0),
        "p50_ms": found.quantile_ms(0.5),
        "p99_ms": found.quantile_ms(0.99),
        "wrong": sum(found.wrong.values()),
        "lost": found.lost,
        "client_us": 1e6 * found.cpu_s / max(1, len(found.latencies_s)),
    }


def checked(server: Server, asked: Asked) -> list[Exchange]:
    """The requests with the bytes of their answers, once these are seen to be right.

    Raises:
        ValueError: one is wrong.
    """
    made = []
    for number, exchange in enumerate(asked.exchanges):
        found = server.ask(exchange)
        right = asked.right(number, found) if asked.right else exchange.body is not None and same(found, exchange.body)
        if not right:
            raise ValueError(f"a wrong answer: {found[:200]!r}")
        made.append(Exchange(exchange.request, found))
    return made
