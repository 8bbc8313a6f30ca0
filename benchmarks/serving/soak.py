"""A mixed load for a while, with engine processes killed at random: what is lost, what is wrong, what happens to memory.

Each answer is compared with what NumPy, or the library's detector, makes of the request. The exit code is 1 if one is lost or wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from pytrtplugins.utils.numbers import FloatRange, IntRange

from ..pages.machine import about
from ..pages.results import publish, write_json
from ..pages.serving import kills
from .load import Clients, Outcome
from .mixed import mixed, start
from .photos import photos
from .processes import descriptors, tree
from .rows import PACKAGES, PAGE
from .servers import Server, end_servers_on_sigterm, free_port

_SAMPLE_S = 2.0
RATES = {"tiny tensors": 60.0, "images as tensors": 6.0, "photos": 4.0, "wrong requests": 16.0, "gRPC": 20.0}


def main() -> int:
    """Run; gives the exit code."""
    given = _arguments()
    end_servers_on_sigterm()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        grpc_port = free_port()
        load = mixed(folder, photos(given.photos), {kind: rate * given.load for kind, rate in RATES.items()})
        clients = stack.enter_context(Clients(len(RATES)))
        server = stack.enter_context(start(folder, grpc_port, given.cpu, given.gpu))
        begun = time.monotonic()
        futures = load.begin(clients, server, grpc_port, 60 * given.minutes)
        watched = _watched(server, begun + 60 * given.minutes, given.kill_every, random.Random(given.seed))
        found = {kind: future.result() for kind, future in futures.items()}
        printed = server.output()
    command = shlex.join(["python", "-m", "benchmarks.serving.soak", *sys.argv[1:]])
    record = {"subject": "kills", **about(PACKAGES, command), **report(found, watched, given.minutes)}
    _, table, words, _ = kills("kills", record)
    print(f"{table}\n\n{words}")
    if given.docs:
        publish(record, PAGE, "kills", given.docs)
    if given.json:
        write_json(given.json, {**record, "samples": watched})
    bad = sum(each.lost + sum(each.wrong.values()) for each in found.values())
    if bad:
        print(printed[-4000:], file=sys.stderr)
    return int(bad > 0)


def report(found: dict[str, Outcome], watched: dict[str, list[float]], minutes: float) -> dict[str, Any]:
    """What became of each kind of request, and of memory: a record without the machine."""
    rows = [
        {
            "requests": kind, "sent": each.sent, "answered": len(each.latencies_s), "lost": each.lost,
            "wrong": {str(status): count for status, count in each.wrong.items()}, "p50_ms": each.quantile_ms(0.5),
            "p99_ms": each.quantile_ms(0.99), "slowest_ms": each.quantile_ms(1),
        }
        for kind, each in found.items()
    ]  # fmt: skip
    seconds, memory = np.array(watched["seconds"]), np.array(watched["mib"])
    settled = seconds > seconds[-1] / 3
    slope = np.polyfit(seconds[settled], memory[settled], 1)[0] * 3600 if settled.sum() > 2 else None
    middle = (
        [float(np.median(part)) for part in np.array_split(memory[settled], 2)] if settled.sum() > 1 else [None] * 2
    )
    seen = {
        "killed": len(watched["killed_s"]), "mib_first": memory[0], "mib_then": middle[0], "mib_last": middle[1],
        "mib_per_hour": slope, "files_first": watched["files"][0], "files_last": watched["files"][-1],
    }  # fmt: skip
    return {"minutes": minutes, "rows": rows, "watched": seen}


def _watched(server: Server, until: float, kill_every: float, chance: random.Random) -> dict[str, list[float]]:
    """Sample memory, and kill engine processes, until a time."""
    found: dict[str, list[float]] = {"seconds": [], "mib": [], "files": [], "killed_s": []}
    begun = time.monotonic()
    next_kill = begun + kill_every
    while (now := time.monotonic()) < until:
        if kill_every and now >= next_kill:
            engines = engine_pids(server)
            if engines:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(engines), signal.SIGKILL)
                found["killed_s"].append(now - begun)
            next_kill = now + kill_every * chance.uniform(0.5, 1.5)
        found["seconds"].append(now - begun)
        found["mib"].append(server.pss_bytes() / (1 << 20))
        found["files"].append(sum(map(descriptors, server.pids())))
        time.sleep(_SAMPLE_S)
    return found


def engine_pids(server: Server) -> list[int]:
    """Of the processes that have the models."""
    found = []
    for pid in tree(server.process.pid):
        with contextlib.suppress(OSError, ValueError, IndexError, TypeError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if json.loads(words[3])["role"] == "engine":
                found.append(pid)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.soak", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=FloatRange(0, 10_000), default=10.0, help="default: %(default)s")
    add("--kill-every", type=FloatRange(0, 100_000), default=20.0, metavar="SECONDS", help="on average; 0: never")
    add("--cpu", type=IntRange(1, 256), default=1, help="CPU processes (default: %(default)s)")
    add("--gpu", type=IntRange(1, 256), default=2, help="engine processes (default: %(default)s)")
    add("--load", type=FloatRange(0, 1000), default=1.0, help="times the usual rates (106 requests a second)")
    add("--photos", type=Path, metavar="FOLDER", help="with .jpg files; default: scikit-image's")
    add("--seed", type=IntRange(0, 1 << 30), default=1, help="of the times of kills")
    add("--docs", type=Path, metavar="FOLDER", help="write the tables into serving_benchmarks.md there")
    add("--json", type=Path, metavar="FILE", help="write the record, with the samples of memory")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
