"""Photos through servers on a GPU: 1, 2 and 4 engine processes over HTTP and gRPC, beside one Flask process with PyTorch in FP32.

Nothing is downloaded. A row that cannot be had says why, and the record is written after each. It also has the cores that each process
took, and the load of the GPU: a connection stays with one CPU process, which may be the limit while others do nothing. Therefore each
client has several connections over gRPC, as it has over HTTP.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pytrtplugins.utils.numbers import FloatRange, IntRange

from ..pages.machine import about
from ..pages.program import add_options, collect, keep
from . import photos
from .load import Clients, Exchange, Load, Outcome
from .processes import cpu_s, pss_bytes
from .rows import ENOUGH, PACKAGES, PAGE, Row, in_time
from .servers import Command, Server, end_servers_on_sigterm, free_port, own
from .soak import engine_pids
from .streams import stream

KIND = "photos on a GPU, JPEG"
_CONNECTIONS, _AHEAD, _SHARE, _WARM_S = 16, 64, 0.8, 2.0
_HTTP, _STREAMS = "HTTP", "gRPC streams"
_IDLE = 0.05  # cores
_NEAR = 0.05  # of an image's longer side: decoders and precisions differ a little


def main() -> int:
    """Measure; gives the exit code."""
    given = _arguments()
    end_servers_on_sigterm()
    record: dict[str, Any] = {
        "subject": "serving",
        **about(PACKAGES, shlex.join(["python", "-m", "benchmarks.serving.gpu", *sys.argv[1:]]), given.note),
        "rows": [],
    }
    record["gpu"] = _nvidia("name,driver_version")
    with tempfile.TemporaryDirectory() as name, Clients(max(given.clients)) as clients:
        rows = in_time(_rows(given, Path(name), clients), given.seconds)
        collect(record, rows, lambda row: f"{row.server}: {row.reason or _short(row)}", given.json)
    if not record["rows"]:
        raise SystemExit(f"no row has {' or '.join(given.only)} in its name")
    return keep(record, PAGE, given.name, given.docs)


def _rows(given: argparse.Namespace, folder: Path, clients: Clients) -> Iterator[Row]:
    try:
        sizes = {"settings": {"batch": [1, 8, 32]}} if given.engine == "cuda" else {}
        engine = photos.animals_engine(folder, given.engine, given.precision, "dynamic", **sizes)
        jpegs = photos.photos(given.photos)
        expected = photos.exchanges(engine, jpegs)
    except Exception as error:
        yield Row("pytrt serve", KIND, reason=f"{type(error).__name__}: {str(error)[:300]}")
        return
    flask = Command(
        "Flask, one process, PyTorch FP32", lambda port: [sys.executable, "-m", f"{__package__}.torch_flask", str(port)]
    )
    yield from _server(flask, expected, None, given, clients, jpegs)
    for engines, cpu, decode in itertools.product(given.engines, given.cpu, given.decode):
        cpu, port = cpu or max(1, (os.cpu_count() or 1) - given.clients[0] - 1), free_port()
        options = ("--cpu", cpu, "--gpu", engines, "--grpc-port", port, "--decode", decode, "--queue", 4096)
        title = f"pytrt serve, {cpu} CPU + {engines} engine, decode {decode}"
        yield from _server(own(title, [f"animals={engine}"], *options), expected, port, given, clients, jpegs)


def _wanted(title: str, given: argparse.Namespace) -> bool:
    """Whether a row is to be measured."""
    return not given.only or any(text.lower() in title.lower() for text in given.only)


def _server(
    command: Command, expected: Sequence[Exchange], grpc_port: int | None, given: argparse.Namespace, clients: Clients,
    jpegs: Sequence[bytes],
) -> Iterator[Row]:  # fmt: skip
    ways = [(_HTTP, _CONNECTIONS)]
    if grpc_port is not None:
        ways += [(_STREAMS, connections) for connections in given.connections]
    rows = [
        (way, count, connections, f"{command.name}, {_title(way, count, connections, given)}")
        for way, connections in ways
        for count in given.clients
    ]
    rows = [each for each in rows if _wanted(each[-1], given)]
    if not rows:
        return
    any_answer = [Exchange(each.request) for each in expected]

    def load(way: str, count: int, connections: int, seconds: float, rate: float | None) -> list[Outcome]:
        if way == _HTTP:
            parts = [
                Load(server.port, any_answer, seconds, connections, rate and rate / count, seed)
                for seed in range(count)
            ]
            futures = [clients.begin(part) for part in parts]
        else:
            ahead = _AHEAD if rate is None else _AHEAD // 8
            sent = (stream, grpc_port, jpegs, seconds, ahead, "animals", connections)
            futures = [clients.call(*sent) for _ in range(count)]
        return [future.result() for future in futures]

    try:
        with Server(command, Exchange(expected[0].request)) as server:
            for exchange in expected:
                if not agrees(found := server.ask(exchange), exchange.body or b""):
                    raise ValueError(f"expected {(exchange.body or b'')[:200]!r}, found {found[:200]!r}")
            for way, count, connections, title in rows:
                yield _measured(server, title, partial(load, way, count, connections), given.load_seconds, way)
    except Exception as error:
        yield Row(command.name, KIND, reason=f"{type(error).__name__}: {str(error)[:300]}")


def _title(way: str, clients: int, connections: int, given: argparse.Namespace) -> str:
    """A row's part of its name: numbers that other rows have too are left out."""
    words = [way]
    if len(given.clients) > 1:
        words.append(f"{clients} client{'s' * (clients > 1)}")
    if way == _STREAMS and len(given.connections) > 1:
        words.append(f"{connections} connection{'s' * (connections > 1)} each")
    return ", ".join(words)


def _measured(
    server: Server, title: str, load: Callable[[float, float | None], list[Outcome]], seconds: float, way: str
) -> Row:
    """The largest rate, and latencies below it: over HTTP at 80 % of it, on streams with an eighth as many photos on their way."""
    row = Row(title, KIND, cold_s=server.cold_s)
    try:
        load(_WARM_S, None)
        busy: list[str] = []
        look = threading.Timer(seconds / 2, lambda: busy.append(_nvidia("utilization.gpu,utilization.jpeg")))
        look.start()
        before = {pid: cpu_s(pid) for pid in server.pids()}
        best = Outcome.joined(load(seconds, None))
        taken = {pid: cpu_s(pid) - began for pid, began in before.items()}
        look.join()
        if not len(best.latencies_s) or best.wrong or best.lost:
            raise ValueError(f"{best.lost} requests lost, errors by status: {dict(best.wrong)}")
        engines, scale = set(engine_pids(server)), 1e6 / len(best.latencies_s)
        row.cpu_us = scale * sum(taken.values())
        row.engine_us = scale * sum(took for pid, took in taken.items() if pid in engines)
        row.client_us = scale * best.cpu_s
        carrying = taken.keys() - engines - ({server.process.pid} if engines else set())  # without the supervisor
        for role, own_pids in ("engine", engines), ("CPU", carrying):
            row.cores[role] = sorted((round(taken[pid] / best.seconds, 2) for pid in own_pids), reverse=True)
        row.rate, row.p50_ms, row.p99_ms = best.rate, best.quantile_ms(0.5), best.quantile_ms(0.99)
        row.pss_mib, row.processes = server.pss_bytes() / (1 << 20), len(server.pids())
        below = Outcome.joined(load(seconds, _SHARE * row.rate))
        memory = {str(pid): pss_bytes(pid) / (1 << 20) for pid in engines}
        row.open.append(
            {
                "share": _SHARE, "planned": _SHARE * row.rate if way == _HTTP else below.rate, "rate": below.rate,
                "fell_behind": way == _HTTP and below.rate < ENOUGH * _SHARE * row.rate,
                "p50_ms": below.quantile_ms(0.5), "p99_ms": below.quantile_ms(0.99), "wrong": sum(below.wrong.values()),
                "lost": below.lost, "engine_pss_mib": memory, "gpu_mib": _nvidia("memory.used"),
                "gpu_busy": "".join(busy), "gpu_processes": _nvidia("pid,used_memory", "compute-apps"),
            }
        )  # fmt: skip
    except Exception as error:
        row.reason = f"{type(error).__name__}: {str(error)[:300]}"
    return row


def agrees(found: bytes, expected: bytes) -> bool:
    """Whether an answer has all boxes that are expected and sure, nearly in their places."""
    said, wanted = json.loads(found), json.loads(expected)
    near = _NEAR * max(wanted["width"], wanted["height"])
    return all(
        any(
            other["label"] == each["label"]
            and all(abs(a - b) <= near for a, b in zip(other["box"], each["box"], strict=True))
            for other in said["detections"]
        )
        for each in wanted["detections"]
        if each["score"] > 0.6
    )


def _short(row: Row) -> str:
    """What a row says, in a line."""
    busiest = ", ".join(
        f"{max(cores):.2f} of the busiest {role} process, {sum(each > _IDLE for each in cores)} of {len(cores)} busy"
        for role, cores in row.cores.items()
        if cores
    )
    part = f", {row.engine_us:,.0f} in engine processes" if row.engine_us else ""
    return (
        f"{row.rate:,.0f}/s, p99 {row.p99_ms:.1f} ms, CPU {row.cpu_us:,.0f} µs{part}, client {row.client_us:,.0f} µs; cores: {busiest}; "
        f"GPU and its JPEG engines: {row.open[0]['gpu_busy'] if row.open else ''}"
    )


def _nvidia(fields: str, what: str = "gpu") -> str:
    """What nvidia-smi says; empty where there is none."""
    try:
        command = ["nvidia-smi", f"--query-{what}={fields}", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.gpu", description=__doc__)
    add = parser.add_argument
    add("--engine", default="cuda", help="of the detector (default: %(default)s)")
    add("--precision", default="fp16", help="of the detector (default: %(default)s)")
    add(
        "--engines",
        type=IntRange(1, 64),
        nargs="+",
        default=[1, 2, 4],
        help="engine processes, one row for each number",
    )
    add("--decode", nargs="+", default=["auto"], choices=["auto", "cpu", "gpu"], help="who decodes, one row for each")
    add(
        "-k", "--only", metavar="TEXT", action="append", help="only rows with this text in their names; may be repeated"
    )
    add(
        "--cpu",
        type=IntRange(0, 256),
        nargs="+",
        default=[0],
        help="CPU processes, one row for each number; 0: the cores that clients and the system leave (default: 0)",
    )
    add("--clients", type=IntRange(1, 64), nargs="+", default=[4], help="processes that send, likewise (default: 4)")
    add(
        "--connections",
        type=IntRange(1, 64),
        nargs="+",
        default=[4],
        help="of each client over gRPC, likewise; they share its photos on their way (default: 4)",
    )
    add("--photos", type=Path, metavar="FOLDER", help="with .jpg files; default: scikit-image's, at 768x576")
    add("--seconds", type=FloatRange(0, 1_000_000), default=1_000_000, help="begin no row after this time")
    add(
        "--load-seconds",
        type=FloatRange(0.1, 3600),
        default=5.0,
        help="of each of a row's two loads (default: %(default)s)",
    )
    add_options(parser, "gpu", None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
