"""Good clients beside bad ones: the good ones' latencies with and without, what the bad ones are told, and memory.

The bad clients stand for other machines, but take CPU time of this one. Each round therefore has three phases: good clients alone; beside
bad ones; and beside a process that takes as much CPU time as the bad ones took, at the same priority, and asks the server nothing. What the
last phase costs is no fault of the server's. The exit code is 1 if a good client got no answer, or a wrong one, or if its p99 latency
beside bad clients, the median over the rounds, is more than twice as long as in this last phase.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytrtplugins.utils.numbers import FloatRange, IntRange

from ..pages.machine import about
from ..pages.results import publish
from ..pages.serving import bad_clients
from . import attacks
from .load import Clients, Load, Outcome
from .mixed import Mixed, mixed, start
from .photos import photos
from .rows import PACKAGES, PAGE
from .servers import Server, end_servers_on_sigterm, free_port

GOOD = {"tiny tensors": 100.0, "photos": 3.0}
_LIMIT = 2.0
_PAUSE_S = 0.5
_LONGER_S = 3.0  # than good clients: they may begin late, and that all bad ones leave at once is another matter


ALONE, BESIDE, BURN = "alone", "beside", "burn"
_NONE = {ALONE: 0.0, BESIDE: 0.0, BURN: 0.0}


@dataclass
class Trial:
    """What an attack did.

    Attributes:
        good: What became of good clients in each round, by phase and kind.
        server: Cores that the server took, of all rounds together, by phase.
        attacker: Cores that bad clients took, and what took as many in their place, likewise.
        told: Statuses that bad clients got; 0: closed.
        mib: Largest memory of the server's processes.
    """

    good: dict[str, list[dict[str, Outcome]]] = field(default_factory=lambda: {phase: [] for phase in _NONE})
    server: dict[str, float] = field(default_factory=lambda: dict(_NONE))
    attacker: dict[str, float] = field(default_factory=lambda: dict(_NONE))
    told: dict[int, int] = field(default_factory=dict)
    mib: float = 0.0

    def p99_ms(self, kind: str, phase: str) -> float:
        """The median over the rounds."""
        return statistics.median(each[kind].quantile_ms(0.99) for each in self.good[phase])

    def ratio(self, kind: str, phase: str) -> float:
        """How many times as long that is beside bad clients."""
        return self.p99_ms(kind, BESIDE) / self.p99_ms(kind, phase)

    def cores(self, taken: dict[str, float], phase: str) -> float:
        """Of a round."""
        return taken[phase] / max(1, len(self.good[phase]))

    def failed(self) -> int:
        """Requests of good clients that were lost, or answered otherwise than expected."""
        rounds = [found for phase in self.good.values() for each in phase for found in each.values()]
        return sum(found.lost + sum(found.wrong.values()) for found in rounds)

    def held(self) -> bool:
        """Whether good clients hardly noticed what bad ones did to the server."""
        return not self.failed() and all(self.ratio(kind, BURN) <= _LIMIT for kind in GOOD)


def main() -> int:
    """Run; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.hostile", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=FloatRange(0.1, 3600), default=12.0, help="of each phase (default: %(default)s)")
    add("--rounds", type=IntRange(1, 100), default=2, help="(default: %(default)s)")
    add("--cpu", type=IntRange(0, 256), default=1, help="CPU processes (default: %(default)s)")
    add("--docs", type=Path, metavar="FOLDER", help="write the table into serving_benchmarks.md there")
    add("-k", metavar="WORDS", action="append", help="only attacks whose name has this; may be repeated")
    given = parser.parse_args()
    end_servers_on_sigterm()
    names = [name for name in attacks.ATTACKS if any(words in name for words in given.k or [""])]
    if not names:
        parser.error(f"-k: expected words of {', '.join(attacks.ATTACKS)}; found {' '.join(given.k)}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        grpc_port = free_port()
        load = mixed(folder, photos(None), GOOD)
        clients = stack.enter_context(Clients(len(GOOD)))
        server = stack.enter_context(start(folder, grpc_port, given.cpu, 1))
        _good(clients, server, load, 2.0)
        trials = {name: Trial() for name in names}
        for _ in range(given.rounds):
            for name, trial in trials.items():
                _round(name, trial, server, grpc_port, clients, load, given.seconds)
    command = shlex.join(["python", "-m", "benchmarks.serving.hostile", *sys.argv[1:]])
    record = {"subject": "bad clients", **about(PACKAGES, command), "rows": [_row(*each) for each in trials.items()]}
    _, table = bad_clients("bad-clients", record)
    print(table)
    if given.docs:
        publish(record, PAGE, "bad-clients", given.docs)
    return int(not all(trial.held() for trial in trials.values()))


def _row(name: str, trial: Trial) -> dict[str, Any]:
    """An attack's row of the record."""
    return {
        "attack": name,
        "cores": [
            trial.cores(trial.attacker, BESIDE),
            *(trial.cores(trial.server, phase) for phase in (ALONE, BESIDE)),
        ],
        "p99_ms": {kind: [trial.p99_ms(kind, phase) for phase in (ALONE, BURN, BESIDE)] for kind in GOOD},
        "ratios": {kind: [trial.ratio(kind, phase) for phase in (ALONE, BURN)] for kind in GOOD},
        "failed": trial.failed(),
        "told": {str(status): count for status, count in trial.told.items()},
        "mib": trial.mib,
    }


def _round(
    name: str, trial: Trial, server: Server, grpc_port: int, clients: Clients, load: Mixed, seconds: float
) -> None:
    def phase(which: str) -> None:
        began, cpu = time.monotonic(), server.cpu_s()
        trial.good[which].append(_good(clients, server, load, seconds))
        trial.server[which] += (server.cpu_s() - cpu) / (time.monotonic() - began)

    whole = seconds + _PAUSE_S + _LONGER_S
    phase(ALONE)
    with Clients(1) as attacker, _memory(server, trial):
        attacker.call(attacks.prepare, name).result()
        bad = attacker.call(attacks.run, name, server.port, grpc_port, whole)
        time.sleep(_PAUSE_S)
        phase(BESIDE)
        found = bad.result()
        for status, count in found.wrong.items():
            trial.told[status] = trial.told.get(status, 0) + count
    time.sleep(_PAUSE_S)
    with Clients(1) as other:
        share = found.cpu_s / found.seconds
        taken = other.call(attacks.burn, share, whole)
        time.sleep(_PAUSE_S)
        phase(BURN)
        trial.attacker[BESIDE] += share
        trial.attacker[BURN] += taken.result().cpu_s / taken.result().seconds


def _good(clients: Clients, server: Server, load: Mixed, seconds: float) -> dict[str, Outcome]:
    begun = {
        kind: clients.begin(Load(server.port, load.kinds[kind], seconds, load.connections, rate))
        for kind, rate in GOOD.items()
    }
    return {kind: future.result() for kind, future in begun.items()}


@contextlib.contextmanager
def _memory(server: Server, trial: Trial):
    """Watch memory meanwhile."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            trial.mib = max(trial.mib, server.pss_bytes() / (1 << 20))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
