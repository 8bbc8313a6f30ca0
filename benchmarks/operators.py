"""Run the tests that ONNX ships for its operators on engines, and write the tables of docs/reference/operators.md."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pytrtplugins.utils.numbers import IntRange

from .networks import ROOT
from .node_tests import (
    CRASHED,
    FAILED,
    HUNG,
    LIBRARIES,
    PASSED,
    REFUSED,
    WRONG,
    Case,
    Outcome,
    load_cases,
    run_case,
    run_cases,
)
from .pages.machine import version_text, versions
from .pages.region import fill_table

Outcomes = Mapping[str, Outcome]
"""The outcome of each test, by the test's name."""
_ENGINES = ["onnxruntime", "cpu", "reference", "cuda"]
_LETTERS = {REFUSED: "refused", WRONG: "wrong", FAILED: "error", CRASHED: "crash", HUNG: "hang"}


def summary(found: Mapping[str, Outcomes]) -> str:
    """How many tests each runner passes, as Markdown."""
    lines = [
        "| run by | passed | refused | wrong, its library right | wrong, as its library | other errors | crashed or hung |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for runner, outcomes in found.items():
        counts = Counter(outcome.kind for outcome in outcomes.values())
        library = found.get(LIBRARIES.get(runner, ""), {})
        right = sum(
            o.kind == WRONG and name in library and library[name].kind == PASSED for name, o in outcomes.items()
        )
        cells = (counts[PASSED], counts[REFUSED], right, counts[WRONG] - right, counts[FAILED])
        lines.append(f"| {runner} | " + " | ".join(map(str, (*cells, counts[CRASHED] + counts[HUNG]))) + " |")
    return "\n".join(lines)


def operator_table(cases: Sequence[Case], found: Mapping[str, Outcomes]) -> str:
    """What each runner does with each operator's tests, as Markdown."""
    by_operator = defaultdict[str, list[str]](list)
    for case in cases:
        by_operator[case.operator].append(case.name)
    lines = ["| operator | tests | " + " | ".join(found) + " |", "|---|---:|" + "---|" * len(found)]
    for operator, names in sorted(by_operator.items()):
        cells = []
        for outcomes in found.values():
            counts = Counter(outcomes[name].kind for name in names)
            rest = ", ".join(f"{counts[kind]} {word}" for kind, word in _LETTERS.items() if counts[kind])
            cells.append("all" if not rest else f"{counts[PASSED]}; {rest}")
        lines.append(f"| {operator} | {len(names)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def reason_table(cases: Sequence[Case], found: Mapping[str, Outcomes], engines: Sequence[str]) -> str:
    """Why engines refuse tests: reason, engine, number of tests, operators; as Markdown."""
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for engine in engines:
        for case in cases:
            outcome = found[engine][case.name]
            if outcome.kind != PASSED:
                rows[engine, _general(outcome)].append(case.operator)
    lines = ["| engine | why not | tests | operators |", "|---|---|---:|---|"]
    for (engine, reason), operators in sorted(rows.items(), key=lambda row: (row[0][0], -len(row[1]), row[0][1])):
        lines.append(f"| {engine} | {reason} | {len(operators)} | {', '.join(sorted(set(operators)))} |")
    return "\n".join(lines)


def fallback_table() -> str:
    """What engine `cpu` leaves to onnxruntime, as Markdown."""
    from pytrtplugins.engines.openvino.known_errors import KNOWN_ERRORS

    lines = ["| operators | of which | OpenVINO's error |", "|---|---|---|"]
    lines += [f"| {', '.join(row.operators)} | {row.where or 'all'} | {row.what} |" for row in KNOWN_ERRORS]
    return "\n".join(lines)


def _general(outcome: Outcome) -> str:
    """A reason without what differs from test to test."""
    text = re.sub(r"Do: .*", "", outcome.reason)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "…", text)
    text = re.sub(r"\d[\d.,e+-]*", "n", text)
    return f"{outcome.kind}: {text[:120].strip()}".replace("|", "/")


def main() -> int:
    """Parse arguments, run, print or write."""
    given = _arguments()
    cases = load_cases(given.words)
    runners = [runner for engine in given.engine for runner in (engine, LIBRARIES.get(engine, "")) if runner]
    found: dict[str, dict[str, Outcome]] = {}
    for runner in runners:
        begun = time.perf_counter()
        outcomes = {
            case.name: outcome for case, outcome in run_cases(cases, partial(run_case, runner=runner), given.processes)
        }
        found[runner] = {case.name: outcomes[case.name] for case in cases}
        print(f"{runner}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    for runner, known in found.items():
        for name, outcome in known.items():
            if outcome.kind in given.show:
                library = found.get(LIBRARIES.get(runner, ""), {}).get(name)
                print(f"{runner}\t{name}\t{outcome.kind}\t{library.kind if library else '-'}\t{outcome.reason}")
    print(summary(found))
    if given.write:
        packages = version_text({"versions": versions(("onnx", "onnxruntime", "openvino"))})
        fill_table(given.docs, "summary", f"{len(cases)} tests; {packages}.\n\n{summary(found)}")
        fill_table(given.docs, "fallback", fallback_table())
        fill_table(given.docs, "reasons", reason_table(cases, found, given.engine))
        fill_table(given.docs, "operators", operator_table(cases, found))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    add = parser.add_argument
    add("--engine", nargs="+", choices=_ENGINES, default=_ENGINES)
    add("-k", dest="words", default="", metavar="WORDS", help="only tests whose name has one of these words")
    add("--processes", type=IntRange(1, 1024), default=os.cpu_count(), help="tests at a time (default: %(default)s)")
    add("--show", nargs="*", default=[], choices=list(_LETTERS), help="print tests that ended so, with the reason")
    add("--write", action="store_true", help="write the tables of the page")
    add(
        "--docs",
        type=Path,
        default=ROOT / "docs" / "reference" / "operators.md",
        help="the page (default: %(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
