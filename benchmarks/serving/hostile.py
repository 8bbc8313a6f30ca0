"""Good clients beside bad ones: the good ones' latencies with and without, what the bad ones are told, and memory.

Phases with and without bad clients alternate. The exit code is 1 if a good client got no answer, or a wrong one, or if its p99 latency,
the median over the rounds, is more than twice that of the phases without.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from pytrtplugins.utils.numbers import Real, Whole

from . import attacks, page
from .load import Clients, Load, Outcome
from .mixed import Mixed, mixed, start
from .photos import photos
from .servers import Server, end_servers_on_sigterm, free_port

GOOD = {"tiny tensors": 100.0, "photos": 3.0}
_LIMIT = 2.0
_PAUSE_S = 0.5


@dataclass
class Trial:
    """What an attack did.

    Attributes:
        without: Of good clients before each round of it.
        beside: Of good clients beside it.
        told: Statuses that bad clients got; 0: closed.
        mib: Largest memory of the server's processes.
    """

    without: dict[str, list[Outcome]] = field(default_factory=lambda: {kind: [] for kind in GOOD})
    beside: dict[str, list[Outcome]] = field(default_factory=lambda: {kind: [] for kind in GOOD})
    told: dict[int, int] = field(default_factory=dict)
    mib: float = 0.0

    def p99_ms(self, kind: str, beside: bool) -> float:
        """The median over the rounds."""
        return statistics.median(each.quantile_ms(0.99) for each in (self.beside if beside else self.without)[kind])

    def failed(self) -> int:
        """Requests of good clients that were lost, or answered otherwise than expected."""
        both = [each for side in (self.without, self.beside) for found in side.values() for each in found]
        return sum(each.lost + sum(each.wrong.values()) for each in both)

    def held(self) -> bool:
        """Whether good clients hardly noticed."""
        return not self.failed() and all(self.p99_ms(kind, True) <= _LIMIT * self.p99_ms(kind, False) for kind in GOOD)


def main() -> int:
    """Run; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.hostile", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=Real(0.1, 3600), default=12.0, help="of each phase (default: %(default)s)")
    add("--rounds", type=Whole(1, 100), default=2, help="(default: %(default)s)")
    add("--cpu", type=Whole(0, 256), default=1, help="CPU processes (default: %(default)s)")
    add("--docs", type=Path, metavar="FOLDER", help="write the table into serving_benchmarks.md there")
    add("-k", default="", metavar="WORDS", help="only attacks whose name has this")
    given = parser.parse_args()
    end_servers_on_sigterm()
    names = [name for name in attacks.ATTACKS if given.k in name]
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
    print(table(trials))
    if given.docs:
        page.write_text(
            table(trials), " ".join(["python -m benchmarks.serving.hostile", *sys.argv[1:]]), "bad-clients", given.docs
        )
    return int(not all(trial.held() for trial in trials.values()))


def table(trials: dict[str, Trial]) -> str:
    """In Markdown."""
    kinds = " | ".join(f"{kind}: p99 ms without / beside | ratio" for kind in GOOD)
    lines = [f"| bad clients | {kinds} | good requests failed | bad clients were told | memory MiB |"]
    lines.append("|---|" + 2 * len(GOOD) * "---:|" + "---:|---|---:|")
    for name, trial in trials.items():
        parts = []
        for kind in GOOD:
            without, beside = trial.p99_ms(kind, False), trial.p99_ms(kind, True)
            parts += [f"{without:.1f} / {beside:.1f}", f"{beside / without:.2f}"]
        told = ", ".join(
            f"{f'status {status}' if status else 'closed'}: {n:,}" for status, n in sorted(trial.told.items())
        )
        lines.append(f"| {name} | {' | '.join(parts)} | {trial.failed()} | {told or 'nothing'} | {trial.mib:.0f} |")
    return "\n".join(lines)


def _round(
    name: str, trial: Trial, server: Server, grpc_port: int, clients: Clients, load: Mixed, seconds: float
) -> None:
    for kind, found in _good(clients, server, load, seconds).items():
        trial.without[kind].append(found)
    with Clients(1) as attacker, _memory(server, trial):
        bad = attacker.call(attacks.run, name, server.port, grpc_port, seconds + 2 * _PAUSE_S)
        time.sleep(_PAUSE_S)
        for kind, found in _good(clients, server, load, seconds).items():
            trial.beside[kind].append(found)
        for status, count in bad.result().wrong.items():
            trial.told[status] = trial.told.get(status, 0) + count
    time.sleep(_PAUSE_S)


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
