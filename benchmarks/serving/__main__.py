"""Measure this project's server, and others, with the same trivial model and with photos; write docs/lab/serving_benchmarks.md.

Answers are compared with NumPy's, or the library's, before anything is timed. The largest rate is that of 16 connections which always
ask; latencies are those of requests at random times at 50, 80 and 95 % of it, counted from the time that was planned.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytrtplugins.utils.numbers import FloatRange

from ..pages.machine import about, versions
from ..pages.program import add_options, collect, keep
from . import kinds, photos
from .alone import alone
from .load import Clients
from .peers import PEERS
from .rows import PACKAGES, PAGE, Row, in_time, measure, short
from .servers import end_servers_on_sigterm, own

MODES = {
    "pytrt serve, one process": ("--cpu", 0),
    "pytrt serve, 1 CPU + 1 engine process": ("--cpu", 1, "--gpu", 1),
    "pytrt serve, 2 CPU + 1 engine process": ("--cpu", 2, "--gpu", 1),
}
_SUMS = ["benchmarks.serving.models:Tiny", "benchmarks.serving.models:Raw"]


def main() -> int:
    """Measure, or write the page of a record."""
    given = _arguments()
    end_servers_on_sigterm()
    record: dict[str, Any]
    if given.record:
        record = json.loads(given.record.read_text())
    else:
        command = shlex.join(["python", "-m", "benchmarks.serving", *sys.argv[1:]])
        record = {"subject": "serving", **about(PACKAGES, command, given.note), "rows": []}
        collect(record, _rows(given), short, given.json)
    return keep(record, PAGE, given.name, given.docs)


def _rows(given: argparse.Namespace) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name, Clients(1) as clients:
        yield from in_time(_all(given, Path(name), clients), given.seconds)


def _all(given: argparse.Namespace, folder: Path, clients: Clients) -> Iterator[Row]:
    engine = photos.animals_engine(folder)
    jpegs = photos.photos(given.photos)
    asked = kinds.own_kinds(photos.exchanges(engine, jpegs))
    sums = {kind: asked[kind] for kind in (kinds.TINY, kinds.RAW)}
    wanted = given.k.lower()
    version = versions(["pytrtplugins"]).get("pytrtplugins", "")
    for title, options in MODES.items():
        if wanted in title.lower():
            yield from measure(own(title, _SUMS, *options), version, sums, clients, given.load_seconds)
    if given.peers:
        for peer in PEERS:
            if wanted in peer.name.lower():
                yield from _peer(given, peer, clients)
    for title, options in MODES.items():
        if wanted in title.lower():
            only = {kinds.PHOTOS: asked[kinds.PHOTOS]}
            yield from measure(own(title, [f"animals={engine}"], *options), version, only, clients, given.load_seconds)
    if wanted in "library alone":
        yield alone(engine, jpegs, given.load_seconds, kinds.PHOTOS)


def _peer(given: argparse.Namespace, peer: Any, clients: Clients) -> Iterator[Row]:
    installed = peer.version(given.peers)
    if installed is None:
        reason = f"it is not installed. Do: python -m benchmarks.serving.peers {given.peers} {peer.folder}"
        yield Row(peer.name, kinds.TINY, reason=reason)
        return
    yield from measure(peer.command(given.peers), installed, kinds.peer_kinds(peer), clients, given.load_seconds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    add = parser.add_argument
    add(
        "--peers",
        type=Path,
        metavar="FOLDER",
        help="other servers, as python -m benchmarks.serving.peers installs them",
    )
    add("--photos", type=Path, metavar="FOLDER", help="with .jpg files; default: scikit-image's, at 768x576")
    add("--seconds", type=FloatRange(0, 1_000_000), default=1_000_000, help="begin no row after this time")
    add(
        "--load-seconds",
        type=FloatRange(0.1, 3600),
        default=3.0,
        help="of each of a row's four loads (default: %(default)s)",
    )
    add("-k", default="", metavar="WORDS", help="only servers whose name has this")
    add_options(parser, "this-machine")
    add("--record", type=Path, metavar="FILE", help="measure nothing: write the page of such a file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
