"""How connections over gRPC are spread over CPU processes, with a model that looks at nothing: ``python -m benchmarks.serving.spread``.

The kernel gives each connection to one of the processes that listen on the port, by a hash of its addresses, and there it stays. So few
connections leave processes idle, and how many is chance: ``n (1 - (1 - 1/n)^c)`` of n processes have work from c connections on average.
New connections are made in each round, and the numbers take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path

from pytrtplugins.utils.numbers import FloatRange, IntRange

from . import photos
from .load import Exchange
from .processes import cpu_s
from .servers import Server, end_servers_on_sigterm, free_port, own, post
from .soak import engine_pids
from .streams import stream

_AHEAD = 64
_BUSY = 0.5  # of an even part of the work
Round = tuple[int, float, float, float]
"""Busy processes, the part of the busiest one in the work of all, photos a second, and microseconds of the client's CPU of a photo."""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.spread", description=__doc__)
    add = parser.add_argument
    add("--cpu", type=IntRange(1, 256), default=11, help="CPU processes (default: %(default)s)")
    add(
        "--connections",
        type=IntRange(1, 256),
        nargs="+",
        default=[1, 2, 4, 8, 16, 32, 64],
        help="a row for each number",
    )
    add("--rounds", type=IntRange(1, 10_000), default=10, help="(default: %(default)s)")
    add("--seconds", type=FloatRange(0.1, 3600), default=1.0, help="of a round (default: %(default)s)")
    add("--photos", type=Path, help="folder with .jpg files; default: scikit-image's")
    given = parser.parse_args()
    end_servers_on_sigterm()
    jpegs, port = photos.photos(given.photos), free_port()
    options = ("--cpu", given.cpu, "--gpu", 1, "--decode", "gpu", "--grpc-port", port, "--queue", 4096)
    command = own("pytrt serve", ["photos=benchmarks.serving.models:Undecoded"], *options)
    found: dict[int, list[Round]] = {number: [] for number in given.connections}
    with Server(command, Exchange(post("/v1/detect", jpegs[0]))) as server:
        for _ in range(given.rounds):
            for number, rounds in found.items():
                rounds.append(_round(server, port, jpegs, given.seconds, number))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}\n\n{table(found, given.cpu)}")


def table(found: dict[int, list[Round]], processes: int) -> str:
    """In Markdown: medians, and the range of busy processes."""
    lines = [
        f"| connections | busy of {processes}, mean (least to most) | by chance | part of the busiest | photos/s | client's CPU µs |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for number, rounds in found.items():
        busy, part, rate, client = zip(*rounds, strict=True)
        lines.append(
            f"| {number} | {statistics.mean(busy):.1f} ({min(busy)} to {max(busy)}) | {expected(processes, number):.1f} "
            f"| {statistics.median(part):.0%} | {statistics.median(rate):,.0f} | {statistics.median(client):.0f} |"
        )
    return "\n".join(lines)


def expected(processes: int, connections: int) -> float:
    """How many processes get a connection on average, where each goes to any of them."""
    return processes * (1 - (1 - 1 / processes) ** connections)


def _round(server: Server, port: int, jpegs: list[bytes], seconds: float, connections: int) -> Round:
    others = {server.process.pid, *engine_pids(server)}
    before = {pid: cpu_s(pid) for pid in server.pids() if pid not in others}
    outcome = stream(port, jpegs, seconds, _AHEAD, "photos", connections)
    if outcome.lost or outcome.wrong or not len(outcome.latencies_s):
        raise SystemExit(f"{outcome.lost} photos lost, errors by status: {dict(outcome.wrong)}")
    taken = [cpu_s(pid) - began for pid, began in before.items()]
    whole, client = sum(taken), 1e6 * outcome.cpu_s / len(outcome.latencies_s)
    busy = sum(each > _BUSY * whole / max(len(taken), connections) for each in taken)
    return busy, max(taken) / whole, outcome.rate, client


if __name__ == "__main__":
    main()
