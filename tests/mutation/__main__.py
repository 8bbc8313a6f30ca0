"""Mutation testing: small errors are put into the code one at a time, and the tests should fail.

``make mutation SAMPLE=200 SEED=1``, or for some rooms ``ONLY="passes vision"``. The errors are those of operators.py, a sample of
each room. Each is written into a copy of the checkout, where the tests that run its line follow, the nearest first, until one
fails or the time is over. A test that failed is then run without the error, so that it cannot count for another reason.
Nothing is written to the sources. The report is build/mutation/report.json, or what --output names.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.covering import Covering, measure, test_files
from tests.mutation.operators import Mutant
from tests.mutation.sampling import Room, chosen_tests, drawn, errors, rooms, shares
from tests.mutation.trees import BUILD, LIBRARIES, PYTEST, ROOT, Task, make_tree, run_tasks

EQUIVALENT = Path(__file__).parent / "equivalent.toml"
PROCESSES = 2


@dataclass(frozen=True)
class Trial:
    """What came of one error."""

    room: str
    place: str
    operator: str
    change: str
    outcome: str
    """caught, time (it hung, which is noticed), survived, unreliable (a test fails without the error too), equivalent."""
    tests: int
    note: str = ""
    """The test that failed, or why the error changes nothing."""

    @property
    def key(self) -> tuple[str, str]:
        """The same in other runs, though lines may move."""
        return self.place.partition(":")[0], self.change


def key(mutant: Mutant) -> tuple[str, str]:
    """The same in other runs, though lines may move."""
    return mutant.path, mutant.change(_source(mutant.path))


@cache
def _source(path: str) -> bytes:
    return (ROOT / path).read_bytes()


class _Chosen:
    """A plugin of pytest: it runs some tests of the collected files, in a given order, and notes those that fail."""

    def __init__(self, tests: Sequence[str], failures: Path) -> None:
        self._order = {test: number for number, test in enumerate(tests)}
        self._failures = failures

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self._order), key=lambda item: self._order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            with self._failures.open("a") as file:
                file.write(report.nodeid + "\n")

    pytest_collectreport = pytest_runtest_logreport


def run_tests(parts: Sequence[Sequence[str]], failures: Path, *, stop: bool) -> int:
    """Run tests in this process, a part after the other; 1 if one fails, which is noted in a file."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    Path("/proc/self/oom_score_adj").write_text("1000")  # an error may take all memory
    for tests in parts:
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        options = ["-x"] if stop else ["--maxfail=1000000"]
        status = pytest.main([*PYTEST, *options, *files], plugins=[_Chosen(tests, failures)])
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return 1
    return 0


def _failures(tree: Path) -> Path:
    return BUILD / f"{tree.name}.failures"


def _failed(tree: Path) -> list[str]:
    return _failures(tree).read_text().splitlines() if _failures(tree).exists() else []


def try_all(chosen: Mapping[Mutant, Room], covering: Covering, trees: list[Path]) -> Iterator[Trial]:
    """Run the tests of each error; what came of it, in the order of ending."""
    parts: dict[Mutant, list[list[str]]] = {}

    def task(mutant: Mutant) -> Task:
        parts[mutant] = chosen_tests(mutant, covering, chosen[mutant])
        plain = _source(mutant.path)

        def put_in(tree: Path) -> None:
            _failures(tree).unlink(missing_ok=True)
            (tree / mutant.path).write_bytes(mutant.apply(plain))

        def body(tree: Path) -> int:
            return run_tests(parts[mutant], _failures(tree), stop=True)

        seconds = 60 + 4 * sum(covering.seconds[test] for part in parts[mutant] for test in part)
        return Task(mutant, seconds, body, put_in, lambda tree: (tree / mutant.path).write_bytes(plain))

    for ended in run_tasks(map(task, chosen), trees):
        mutant: Mutant = ended.task.subject
        outcome = "time" if ended.status is None else "caught" if ended.status else "survived"
        change = mutant.change(_source(mutant.path))
        place, count = f"{mutant.path}:{mutant.line}", sum(map(len, parts[mutant]))
        first = next(iter(_failed(ended.tree)), "")
        yield Trial(chosen[mutant].name, place, mutant.operator, change, outcome, count, first)


def without_errors(tests: set[str], trees: list[Path]) -> set[str]:
    """Which of these tests fail in a tree without errors."""
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests):
        by_file[test.partition("::")[0]].append(test)

    def task(file: str) -> Task:
        def body(tree: Path) -> int:
            return run_tests([by_file[file]], _failures(tree), stop=False)

        return Task(file, 600.0, body, lambda tree: _failures(tree).unlink(missing_ok=True))

    return {test for ended in run_tasks(map(task, by_file), trees) for test in _failed(ended.tree)}


def known_equivalent() -> dict[tuple[str, str], str]:
    """Errors that change nothing, and why."""
    entries = tomllib.loads(EQUIVALENT.read_text())["equivalent"]
    return {(entry["path"], entry["change"]): entry["why"] for entry in entries}


def table(trials: Sequence[Trial], places: Mapping[str, int]) -> list[str]:
    """A table with a line for each room."""
    lines = [
        "| room | places | tried | caught | survived | equivalent | caught of the others |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in [*sorted({trial.room for trial in trials}), "in all"]:
        counts = Counter(trial.outcome for trial in trials if name in (trial.room, "in all"))
        tried, same = sum(counts.values()), counts["equivalent"]
        caught = counts["caught"] + counts["time"]
        found = places.get(name, sum(places.values()))
        share = f"{100 * caught / (tried - same):.0f} %" if tried > same else "–"
        lines.append(f"| {name} | {found:,} | {tried} | {caught} | {tried - same - caught} | {same} | {share} |")
    return lines


def compared(trials: Sequence[Trial], before: Sequence[Mapping[str, Any]]) -> list[str]:
    """What came of errors that another report has too, where it is different."""
    earlier = {Trial(**trial).key: trial["outcome"] for trial in before}
    changes = [
        (trial, earlier[trial.key]) for trial in trials if earlier.get(trial.key, trial.outcome) != trial.outcome
    ]
    return [f"  {old} → {trial.outcome}: {trial.place}: {trial.change}" for trial, old in changes]


def main(words: Sequence[str] | None = None) -> int:
    """Parse arguments, run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    known = rooms()
    parser.add_argument("room", nargs="*", help="default: all")
    parser.add_argument("--sample", type=int, default=200, help="errors in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=BUILD / "report.json", help="the report (default: %(default)s)")
    parser.add_argument("--again", type=Path, help="try what survived in this report, and nothing else")
    given = parser.parse_args(words)
    unknown = [name for name in given.room if name not in known]
    if unknown:
        parser.error(f"room: expected one of {', '.join(known)}, found {unknown[0]!r}")
    some = {name: known[name] for name in given.room or known}
    found = {name: errors(room) for name, room in some.items()}
    places = {name: sum(map(len, by_operator.values())) for name, by_operator in found.items()}
    counts = shares(places, given.sample)
    chosen: dict[Mutant, Room] = {}
    if given.again:
        missed = [Trial(**trial) for trial in json.loads(given.again.read_text())["trials"]]
        keys = {trial.key for trial in missed if trial.outcome in ("survived", "unreliable")}
        for name, by_operator in found.items():
            chosen |= dict.fromkeys(
                (mutant for pile in by_operator.values() for mutant in pile if key(mutant) in keys), some[name]
            )
    else:
        for name, by_operator in found.items():
            chosen |= dict.fromkeys(islice(drawn(by_operator, given.seed, name), counts[name]), some[name])
    return report(chosen, places, given)


def report(chosen: dict[Mutant, Room], places: Mapping[str, int], given: argparse.Namespace) -> int:
    """Try errors, print and write what came of them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that forked processes end too
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ["XDG_CACHE_HOME"] = str(BUILD / "cache")  # what wrong code keeps must not reach the user's tests
    for library in LIBRARIES:
        importlib.import_module(library)
    same = known_equivalent()
    trials = []
    for mutant, room in list(chosen.items()):
        change = mutant.change(_source(mutant.path))
        if (mutant.path, change) in same:
            del chosen[mutant]
            why = same[mutant.path, change]
            trials.append(
                Trial(room.name, f"{mutant.path}:{mutant.line}", mutant.operator, change, "equivalent", 0, why)
            )
    trees = [make_tree(number + 1) for number in range(PROCESSES)]
    files = test_files() if not given.room else sorted({file for room in chosen.values() for file in room.users})
    covering = Covering(measure(files, trees).values())
    for trial in try_all(chosen, covering, trees):
        trials.append(trial)
        if trial.outcome == "survived":
            print(f"  survived {trial.tests} tests: {trial.place}: {trial.operator}: {trial.change}", flush=True)
    failing = without_errors({trial.note for trial in trials if trial.outcome == "caught" and trial.note}, trees)
    trials = [
        trial if trial.note not in failing else Trial(**{**asdict(trial), "outcome": "unreliable"}) for trial in trials
    ]
    for trial in trials:
        if trial.outcome == "unreliable":
            print(f"  fails without the error too: {trial.note}", flush=True)
    lines = table(trials, places)
    print("\n".join(lines))
    if given.output.exists():
        print("\n".join(compared(trials, json.loads(given.output.read_text())["trials"])))
    written = {
        "seed": given.seed,
        "sample": given.sample,
        "table": lines,
        "trials": [asdict(trial) for trial in trials],
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(written, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
