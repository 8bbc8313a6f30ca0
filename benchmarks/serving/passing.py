"""What it costs to bring a photo to an engine process and its answer back, with a model that looks at nothing.

``python -m benchmarks.serving.passing``. CPU time of one CPU process, one engine process and the client, which is on the same cores; the
ways take turns. The least of several rounds is the main figure, since other programs change it little.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pytrtplugins.utils.numbers import FloatRange, IntRange

from . import photos
from .load import Exchange, Load, Outcome, send
from .processes import cpu_s
from .servers import Server, free_port, own, post
from .soak import engine_pids
from .streams import stream

_CONNECTIONS, _AHEAD = 16, 64
Spent = tuple[float, float, float]
"""Microseconds of CPU of one photo: CPU process, engine process, client."""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.passing", description=__doc__)
    parser.add_argument("--photos", type=Path, help="folder with .jpg files; default: scikit-image's")
    parser.add_argument("--rounds", type=IntRange(1, 10_000), default=10, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=FloatRange(0.1, 3600), default=1.0, help="of a round (default: %(default)s)")
    given = parser.parse_args()
    jpegs, port = photos.photos(given.photos), free_port()
    detect = [Exchange(post("/v1/detect", jpeg)) for jpeg in jpegs]
    infer = [Exchange(post("/v2/models/photos/infer", jpeg, Inference_Header_Content_Length=0)) for jpeg in jpegs]
    options = ("--cpu", 1, "--gpu", 1, "--decode", "gpu", "--grpc-port", port, "--queue", 4096)
    command = own("pytrt serve", ["photos=benchmarks.serving.models:Undecoded"], *options)
    with Server(command, detect[0]) as server:
        ways = {
            "gRPC stream": partial(stream, port, jpegs, given.seconds, _AHEAD, "photos"),
            "HTTP, `/v1/detect`": partial(send, Load(server.port, detect, given.seconds, _CONNECTIONS)),
            "HTTP, `/v2/models/photos/infer`": partial(send, Load(server.port, infer, given.seconds, _CONNECTIONS)),
        }
        spent: dict[str, list[Spent]] = {way: [] for way in ways}
        for number in range(given.rounds + 1):
            for way, run in ways.items():
                taken = _spent(server, run)
                if number:  # the first warms up
                    spent[way].append(taken)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}\n")
    print("| CPU µs of a photo: least / median | CPU process | engine process | client |\n|---|---:|---:|---:|")
    for way, rows in spent.items():
        columns = (f"{min(each):.0f} / {statistics.median(each):.0f}" for each in zip(*rows, strict=True))
        print(f"| {way} | {' | '.join(columns)} |")


def _spent(server: Server, run: Callable[[], Outcome]) -> Spent:
    """Those of a load, all of whose photos are answered."""
    engines = engine_pids(server)
    before = [server.cpu_s(), sum(map(cpu_s, engines))]
    found = run()
    if found.lost or found.wrong or not len(found.latencies_s):
        raise SystemExit(f"{found.lost} photos lost, errors by status: {dict(found.wrong)}")
    engine, scale = sum(map(cpu_s, engines)) - before[1], 1e6 / len(found.latencies_s)
    return scale * (server.cpu_s() - before[0] - engine), scale * engine, scale * found.cpu_s


if __name__ == "__main__":
    main()
