"""What a photo costs: decoding and the network alone, the library, and servers, which take turns: ``python -m benchmarks.serving.cost``.

CPU time of all processes of a server is the main figure, since other programs change it little. Answers are compared with the library's
first, except where the GPU decodes.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pytrtplugins import load_engine
from pytrtplugins.models import Yolov2
from pytrtplugins.utils.numbers import IntRange
from pytrtplugins.utils.prefetch import map_ahead, threads_for_files
from pytrtplugins.vision import decode_image, letterbox

from . import photos
from .load import Exchange, same
from .servers import Server, own, post

_PLACES = {"server, one process": ("--local",), "server, 1 CPU + 1 engine process": ("--cpu", 1, "--gpu", 1)}
_BATCH = 8  # what the server takes where nobody says how many
Spent = tuple[float, float]
"""Seconds by the clock, and seconds of CPU, of one photo."""


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.cost", description=__doc__)
    parser.add_argument("--engine", default="cpu", help="(default: %(default)s)")
    parser.add_argument("--precision", default="int8", help="(default: %(default)s)")
    parser.add_argument("--photos", type=Path, help="folder with .jpg files; default: scikit-image's")
    parser.add_argument(
        "--round", type=IntRange(1, 100_000), default=40, help="photos of a round, by 8 (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=IntRange(1, 1000), default=5, help="(default: %(default)s)")
    parser.add_argument("--connections", type=IntRange(1, 1000), default=12, help="at a time (default: %(default)s)")
    parser.add_argument("--options", default="", help='further options of pytrt serve, such as "--decode gpu"')
    given = parser.parse_args()
    jpegs, options = photos.photos(given.photos), shlex.split(given.options)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        sizes = {"settings": {"batch": [1, 8]}} if given.engine == "cuda" else {}
        file = photos.animals_engine(Path(name), given.engine, given.precision, "dynamic", **sizes)
        sent = list(itertools.islice(itertools.cycle(jpegs), given.round))
        ways = _library(file, sent)
        expected = [] if "gpu" in options else photos.exchanges(file, jpegs)
        first = Exchange(post("/v1/detect", jpegs[0]))
        for place, chosen in _PLACES.items():
            server = stack.enter_context(Server(own(place, [str(file)], *chosen, *options), first))
            for exchange in expected:
                if not same(found := server.ask(exchange), exchange.body or b""):
                    raise SystemExit(f"{place}: expected {exchange.body!r}, found {found!r}")
            ways[place] = _through(server, sent, given.connections)
        spent: dict[str, list[Spent]] = {way: [] for way in ways}
        for number in range(given.rounds + 1):
            for way, run in ways.items():
                taken = run()
                if number:  # the first warms up
                    spent[way].append(taken)
    _print(spent)
    return 0


def _library(file: Path, sent: Sequence[bytes]) -> dict[str, Callable[[], Spent]]:
    """Decoding ahead in threads and the network, which gets the same tensor each time; and the whole detector."""
    engine = load_engine(file)
    detector, context, name = Yolov2(engine, batch=_BATCH), engine.create_context(), engine.inputs[0].name
    image = letterbox(decode_image(sent[0]), detector.size).data[None]

    def network(size: int) -> None:
        batch = np.repeat(image, size, axis=0)
        for number, _ in enumerate(map_ahead(decode_image, sent, threads=threads_for_files())):
            if number % size == 0:
                context.run({name: batch})

    def detect() -> None:
        for _ in detector.stream(sent, image=decode_image):
            pass

    def timed(function: Callable[[], None]) -> Callable[[], Spent]:
        def run() -> Spent:
            wall, cpu = time.perf_counter(), time.process_time()
            function()
            return (time.perf_counter() - wall) / len(sent), (time.process_time() - cpu) / len(sent)

        return run

    return {
        "decoding and network alone, one by one": timed(lambda: network(1)),
        f"decoding and network alone, batches of {_BATCH}": timed(lambda: network(_BATCH)),
        "library, photo to boxes": timed(detect),
    }


def _through(server: Server, sent: Sequence[bytes], connections: int) -> Callable[[], Spent]:
    made = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(connections)]
    threads = ThreadPoolExecutor(connections)

    def ask(number: int) -> None:
        for jpeg in sent[number::connections]:
            made[number].request("POST", "/v1/detect", jpeg)
            answer = made[number].getresponse()
            body = answer.read()
            if answer.status != 200:
                raise SystemExit(f"{server.command.name}: {answer.status} {body[:300]!r}")

    def run() -> Spent:
        wall, before = time.perf_counter(), server.cpu_s()
        list(threads.map(ask, range(connections)))
        return (time.perf_counter() - wall) / len(sent), (server.cpu_s() - before) / len(sent)

    return run


def _print(spent: dict[str, list[Spent]]) -> None:
    others = list(spent)[:3]
    print(
        "| | photos/s | CPU ms, median | least | of the 1st row | of the 2nd | of the 3rd |\n|---|---|---|---|---|---|---|"
    )
    for way, rows in spent.items():
        walls, cpus = zip(*rows, strict=True)
        shares = " | ".join(f"{_share(spent[other], rows):.0%}" for other in others)
        print(
            f"| {way} | {1 / statistics.median(walls):.1f} | {1e3 * statistics.median(cpus):.1f} | {1e3 * min(cpus):.1f} | {shares} |"
        )


def _share(whole: Sequence[Spent], rows: Sequence[Spent]) -> float:
    """CPU time of one row over another's, round by round."""
    return statistics.median(first[1] / own[1] for first, own in zip(whole, rows, strict=True))


if __name__ == "__main__":
    sys.exit(main())
