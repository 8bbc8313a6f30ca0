"""Servers: rates and latencies, and what becomes of good requests beside killed processes and bad clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .chart import Chart, Dot, dots
from .machine import machine_text
from .table import MISSING, figure, left, right, table

__all__ = ["bad_clients", "kills", "servers"]

Row = dict[str, Any]


def servers(name: str, record: Row) -> Iterator[str | Chart]:
    """A table and a chart for each kind of request, the fastest server first."""
    yield machine_text(record)
    for number, kind in enumerate(dict.fromkeys(row["kind"] for row in record["rows"])):
        rows = [row for row in record["rows"] if row["kind"] == kind]
        measured = sorted((row for row in rows if not row["reason"]), key=lambda row: -row["rate"])
        yield f"### {kind}"
        yield table(_SERVERS, measured)
        yield "\n".join(f"- Not measured: {row['server']}: {row['reason']}" for row in rows if row["reason"])
        if len(measured) > 1:
            yield dots(
                f"serving-{name}-{number}", f"largest rates, {kind}", f"{kind}; {record['processor']}",
                "largest rate, requests/s; logarithmic axis; blue: pytrtplugins",
                [Dot(row["server"], row["rate"], f"{row['rate']:,.0f} requests/s, {row['cpu_us']:,.0f} µs CPU",
                     row["server"].startswith("pytrt")) for row in reversed(measured)],
            )  # fmt: skip


def _latency(row: Row) -> str | None:
    return None if row["p50_ms"] is None else f"{row['p50_ms']:.2f} / {row['p99_ms']:.1f}"


def _open_load(part: Row) -> str:
    failed = part["wrong"] + part["lost"]
    text = f"{part['p99_ms']:.1f}" if part["p99_ms"] < 1e4 else "over 10,000"
    return text + (f" ({failed} failed)" if failed else "") + (" (fell behind)" if part["fell_behind"] else "")


def _cpu(row: Row) -> str:
    engine = f" ({row['engine_us']:,.0f} in engine processes)" if row.get("engine_us") else ""
    return f"{row['cpu_us']:,.0f}{engine}"


_SERVERS = (
    left("server", "server"), left("version", "version"), right("requests/s", "rate", ",.0f"), right("p50 / p99 ms", _latency),
    right("p99 ms at 50 / 80 / 95 %", lambda row: " / ".join(map(_open_load, row["open"])) or MISSING),
    right("CPU µs", _cpu), right("client's CPU µs", "client_us", ",.0f"),
    right("memory MiB", lambda row: row["pss_mib"] or None, ".0f"), right("processes", lambda row: row["processes"] or None),
    right("cold start s", "cold_s", ".1f"),
)  # fmt: skip
_KILLS = (
    left("requests", "requests"), right("sent", "sent", ",d"), right("answered as expected", "answered", ",d"),
    right("lost", "lost"),
    right("wrong", lambda row: ", ".join(f"{n} with status {status}" for status, n in sorted(row["wrong"].items())) or "0"),
    right("p50 ms", "p50_ms", ".1f"), right("p99 ms", "p99_ms", ".1f"), right("slowest ms", "slowest_ms", ".0f"),
)  # fmt: skip


def kills(name: str, record: Row) -> Iterator[str]:
    """What became of each kind of request while engine processes were killed, and of memory."""
    if record.get("command"):
        yield machine_text(record)
    yield table(_KILLS, record["rows"])
    seen = {
        name: figure(value, "+.0f" if name == "mib_per_hour" else ".0f") for name, value in record["watched"].items()
    }
    yield (
        f"{record['minutes']:g} minutes, {seen['killed']} engine processes killed. Memory of all processes (PSS): {seen['mib_first']} MiB "
        f"at the start; after the first third {seen['mib_then']} MiB, then {seen['mib_last']} MiB (medians of the halves), "
        f"slope {seen['mib_per_hour']} MiB an hour. Open files: {seen['files_first']} at the start, {seen['files_last']} at the end."
    )
    yield record.get("remark", "")


def bad_clients(name: str, record: Row) -> Iterator[str]:
    """Latencies of good clients alone, beside bad ones, and beside a process that takes as much CPU time."""
    columns = [
        left("bad clients", "attack"),
        right("their cores; the server's alone / beside", lambda row: "{:.2f}; {:.2f} / {:.2f}".format(*row["cores"])),
    ]  # fmt: skip
    for kind in record["rows"][0]["p99_ms"]:

        def milliseconds(row: Row, kind: str = kind) -> str:
            return " / ".join(f"{each:.1f}" for each in row["p99_ms"][kind])

        def ratios(row: Row, kind: str = kind) -> str:
            return " / ".join(f"{each:.2f}" for each in row["ratios"][kind])

        columns += [right(f"{kind}: p99 ms alone / same CPU elsewhere / beside", milliseconds), right("ratios", ratios)]
    columns += [
        right("good requests failed", "failed"), left("bad clients were told", _told), right("memory MiB", "mib", ".0f"),
    ]  # fmt: skip
    if record.get("command"):
        yield machine_text(record)
    yield table(columns, record["rows"])


def _told(row: Row) -> str:
    parts = sorted(((int(status), count) for status, count in row["told"].items()))
    return ", ".join(f"{f'status {status}' if status else 'closed'}: {count:,}" for status, count in parts) or "nothing"
