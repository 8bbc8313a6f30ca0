"""Photos through servers on a GPU: 1, 2 and 4 engine processes over HTTP and gRPC, beside one Flask process with PyTorch in FP32.

Nothing is downloaded. A row that cannot be had says why, and the record is written after each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytrtplugins.utils.files import write_atomic
from pytrtplugins.utils.numbers import Real, Whole

from . import page, photos
from .load import Clients, Exchange, Load, Outcome
from .processes import cpu_s, pss_bytes
from .rows import Row
from .servers import ROOT, Command, Server, end_servers_on_sigterm, free_port, own
from .soak import engine_pids
from .streams import stream

KIND = "photos on a GPU, JPEG"
_CONNECTIONS, _AHEAD, _SHARE, _WARM_S = 16, 64, 0.8, 2.0
_HTTP, _STREAMS = "HTTP", "gRPC streams"
_NEAR = 0.05  # of an image's longer side: decoders and precisions differ a little


def main() -> int:
    """Measure; gives the exit code."""
    given = _arguments()
    end_servers_on_sigterm()
    record: dict[str, Any] = {
        **page.about(" ".join(["python -m benchmarks.serving.gpu", *sys.argv[1:]]), given.note),
        "rows": [],
    }
    record["gpu"] = _nvidia("name,driver_version")
    until = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as name, Clients(given.clients) as clients:
        for row in _rows(given, Path(name), clients):
            record["rows"].append(row.plain())
            print(
                f"{row.server}: {row.reason or f'{row.rate:,.0f}/s, p99 {row.p99_ms:.1f} ms, {row.cpu_us:,.0f} µs'}",
                flush=True,
            )
            if given.json:
                write_atomic(given.json, json.dumps(record, indent=1).encode())
            if time.monotonic() > until:
                print(f"the rest is left out: {given.seconds:g} s are over", file=sys.stderr)
                break
    if not record["rows"]:
        raise SystemExit(f"no row has {' or '.join(given.only)} in its name")
    if given.docs:
        print(f"written: {page.write(record, given.name, given.docs)}")
    return 0


def _rows(given: argparse.Namespace, folder: Path, clients: Clients) -> Iterator[Row]:
    try:
        sizes = {"settings": {"batch": [1, 8, 32]}} if given.engine == "cuda" else {}
        engine = photos.animals_engine(folder, given.engine, given.precision, "dynamic", **sizes)
        jpegs = photos.photos(given.photos)
        expected = photos.exchanges(engine, jpegs)
    except Exception as error:
        yield Row("pytrt serve", KIND, reason=f"{type(error).__name__}: {str(error)[:300]}")
        return
    cpu = given.cpu or max(1, (os.cpu_count() or 1) - given.clients - 1)
    flask = Command(
        "Flask, one process, PyTorch FP32", lambda port: [sys.executable, "-m", f"{__package__}.torch_flask", str(port)]
    )
    if _wanted(f"{flask.name}, {_HTTP}", given):
        yield from _server(flask, expected, None, given, clients, jpegs)
    for engines in given.engines:
        for decode in given.decode:
            port = free_port()
            options = ("--cpu", cpu, "--gpu", engines, "--grpc-port", port, "--decode", decode, "--queue", 4096)
            title = f"pytrt serve, {cpu} CPU + {engines} engine, decode {decode}"
            if not any(_wanted(f"{title}, {way}", given) for way in (_HTTP, _STREAMS)):
                continue
            yield from _server(own(title, [f"animals={engine}"], *options), expected, port, given, clients, jpegs)


def _wanted(title: str, given: argparse.Namespace) -> bool:
    """Whether a row is to be measured."""
    return not given.only or any(text.lower() in title.lower() for text in given.only)


def _server(
    command: Command, expected: Sequence[Exchange], grpc_port: int | None, given: argparse.Namespace, clients: Clients,
    jpegs: Sequence[bytes],
) -> Iterator[Row]:  # fmt: skip
    try:
        with Server(command, Exchange(expected[0].request)) as server:
            for exchange in expected:
                if not agrees(found := server.ask(exchange), exchange.body or b""):
                    raise ValueError(f"expected {(exchange.body or b'')[:200]!r}, found {found[:200]!r}")
            any_answer = [Exchange(each.request) for each in expected]

            def http(seconds: float, rate: float | None) -> list[Outcome]:
                parts = [
                    Load(server.port, any_answer, seconds, _CONNECTIONS, rate and rate / given.clients, seed)
                    for seed in range(given.clients)
                ]
                return [future.result() for future in [clients.begin(part) for part in parts]]

            if _wanted(title := f"{command.name}, {_HTTP}", given):
                yield _measured(server, title, http, given.load_seconds)
            if grpc_port is not None and _wanted(title := f"{command.name}, {_STREAMS}", given):

                def grpc(seconds: float, rate: float | None) -> list[Outcome]:
                    ahead = _AHEAD if rate is None else _AHEAD // 8
                    futures = [clients.call(stream, grpc_port, jpegs, seconds, ahead) for _ in range(given.clients)]
                    return [future.result() for future in futures]

                yield _measured(server, title, grpc, given.load_seconds)
    except Exception as error:
        yield Row(command.name, KIND, reason=f"{type(error).__name__}: {str(error)[:300]}")


def _measured(server: Server, title: str, load: Callable[[float, float | None], list[Outcome]], seconds: float) -> Row:
    """The largest rate, and latencies below it: over HTTP at 80 % of it, on streams with an eighth as many photos on their way."""
    row = Row(title, KIND, cold_s=server.cold_s)
    try:
        load(_WARM_S, None)
        before, engines_before = server.cpu_s(), sum(map(cpu_s, engine_pids(server)))
        best = Outcome.joined(load(seconds, None))
        if not len(best.latencies_s) or best.wrong or best.lost:
            raise ValueError(f"{best.lost} requests lost, errors by status: {dict(best.wrong)}")
        row.cpu_us = 1e6 * (server.cpu_s() - before) / len(best.latencies_s)
        row.engine_us = 1e6 * (sum(map(cpu_s, engine_pids(server))) - engines_before) / len(best.latencies_s)
        row.client_us = 1e6 * best.cpu_s / len(best.latencies_s)
        row.rate, row.p50_ms, row.p99_ms = best.rate, best.quantile_ms(0.5), best.quantile_ms(0.99)
        row.pss_mib, row.processes = server.pss_bytes() / (1 << 20), len(server.pids())
        below = Outcome.joined(load(seconds, _SHARE * row.rate))
        engines = {str(pid): pss_bytes(pid) / (1 << 20) for pid in engine_pids(server)}
        row.open.append(
            {
                "share": _SHARE, "planned": _SHARE * row.rate if title.endswith(_HTTP) else below.rate, "rate": below.rate,
                "p50_ms": below.quantile_ms(0.5), "p99_ms": below.quantile_ms(0.99), "wrong": sum(below.wrong.values()),
                "lost": below.lost, "engine_pss_mib": engines, "gpu_mib": _nvidia("memory.used"),
                "gpu_processes": _nvidia("pid,used_memory", "compute-apps"),
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
    add("--engines", type=Whole(1, 64), nargs="+", default=[1, 2, 4], help="engine processes, one row for each number")
    add("--decode", nargs="+", default=["auto"], choices=["auto", "cpu", "gpu"], help="who decodes, one row for each")
    add(
        "-k", "--only", metavar="TEXT", action="append", help="only rows with this text in their names; may be repeated"
    )
    add(
        "--cpu",
        type=Whole(0, 256),
        default=0,
        help="CPU processes; 0: the cores that clients leave (default: %(default)s)",
    )
    add("--clients", type=Whole(1, 64), default=4, help="processes that send (default: %(default)s)")
    add("--photos", type=Path, metavar="FOLDER", help="with .jpg files; default: scikit-image's, at 768x576")
    add("--seconds", type=Real(0, 1_000_000), default=1_000_000, help="begin no row after this time")
    add("--load-seconds", type=Real(0.1, 3600), default=5.0, help="of each of a row's two loads (default: %(default)s)")
    add("--name", default="gpu", help="heading on the page (default: %(default)s)")
    add("--note", default="", metavar="TEXT", help="a sentence for the page")
    add("--docs", type=Path, help=f"write the page in this folder, such as {ROOT.name}/docs")
    add("--json", type=Path, metavar="FILE", help="keep the record in this file, after each row")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
