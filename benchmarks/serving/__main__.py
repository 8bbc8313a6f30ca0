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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytrtplugins.utils.numbers import Real

from ..pages.machine import about, versions
from ..pages.results import publish, write_json
from . import kinds, photos
from .alone import alone
from .load import Clients
from .peers import PEERS
from .rows import PACKAGES, PAGE, Row, measure
from .servers import ROOT, end_servers_on_sigterm, own

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
        try:
            for row in _rows(given):
                record["rows"].append(row.plain())
                print(
                    f"{row.server}, {row.kind}: {row.reason or f'{row.rate:,.0f}/s, {row.cpu_us:,.0f} µs'}", flush=True
                )
                if given.json:
                    write_json(given.json, record)
        except KeyboardInterrupt:
            print("ended early", file=sys.stderr)
    if not record["rows"]:
        print("no row was finished, so nothing is written")
        return 1
    page = publish(record, PAGE, given.name, given.docs)
    print(f"written: {page}")
    return 0


def _rows(given: argparse.Namespace) -> Iterator[Row]:
    until = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as name, Clients(1) as clients:
        for row in _all(given, Path(name), clients):
            yield row
            if time.monotonic() > until:
                print(f"the rest is left out: {given.seconds:g} s are over", file=sys.stderr)
                return


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
    add("--seconds", type=Real(0, 1_000_000), default=1_000_000, help="begin no row after this time")
    add(
        "--load-seconds", type=Real(0.1, 3600), default=3.0, help="of each of a row's four loads (default: %(default)s)"
    )
    add("-k", default="", metavar="WORDS", help="only servers whose name has this")
    add("--name", default="this-machine", help="heading on the page (default: %(default)s)")
    add("--note", default="", metavar="TEXT", help="a sentence for the page, such as what else ran on the machine")
    add("--docs", type=Path, default=ROOT / "docs", help="folder of the page (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="keep the record in this file, after each row")
    add("--record", type=Path, metavar="FILE", help="measure nothing: write the page of such a file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
