"""Which tests run a line: each test file is measured once, and again when a file that its tests run has changed.

A measurement is a file build/mutation/covering/<test file>.json: the seconds of each test that passes, the digests of the
files that it depends on, and sets of tests with the lines that just these run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutation.trees import BUILD, PACKAGES, PYTEST, ROOT, Task, run_tasks

LIMIT_S = 600.0
"""How long the tests of one file may take."""


@dataclass
class Measurement:
    """What the tests of one file run."""

    test_file: str
    seconds: dict[str, float]
    """Tests that pass, and the time of each."""
    depends: dict[str, str]
    """Files of the checkout, and their digests."""
    groups: list[tuple[str, dict[str, list[int]]]]
    """Tests as a hexadecimal number with a bit for each, and the lines of each file that these tests run."""
    shared: dict[str, list[int]] = field(default_factory=dict)
    """Lines that fixtures run: what comes of them may be checked by any test of the file."""


def test_files() -> list[str]:
    """All files of tests, but those of this folder."""
    files = (path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    return sorted(path for path in files if not path.startswith("tests/mutation/"))


def measure(files: Iterable[str], trees: list[Path]) -> dict[str, Measurement]:
    """Measurements of test files, made anew where there is none for the present text of their files."""
    measured = {file: known for file in files if (known := _load(file)) is not None}
    missing = [file for file in files if file not in measured]
    tasks = (Task(file, LIMIT_S, lambda tree, file=file: _measure_here(file, tree)) for file in missing)
    for number, ended in enumerate(run_tasks(tasks, trees), 1):
        file = ended.task.subject
        print(f"  measured {number}/{len(missing)}: {file}: {ended.seconds:.0f} s, status {ended.status}", flush=True)
        measurement = _load(file)
        if measurement is None:
            print(f"  not used, since its tests did not end, nor kept: {file}", flush=True)
        else:
            measured[file] = measurement
    return measured


def digest(path: Path) -> str:
    """Name the content of a file; empty where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


_digest = cache(digest)


def _path(file: str) -> Path:
    return BUILD / "covering" / (file.replace("/", "+") + ".json")


def _load(file: str) -> Measurement | None:
    if not _path(file).is_file():
        return None
    known = Measurement(**json.loads(_path(file).read_text()))
    if any(_digest(ROOT / path) != text for path, text in known.depends.items()):
        return None
    return known


def _measure_here(file: str, tree: Path) -> int:
    """Run the tests of a file in this process, and write what each runs."""
    import coverage
    import pytest

    include = [f"{tree / package}/*" for package in PACKAGES]
    measured = coverage.Coverage(data_file=None, include=include, config_file=False)
    seconds: dict[str, float] = defaultdict(float)
    failed = set()

    class Contexts:
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_setup(self, item: pytest.Item) -> None:
            measured.switch_context(item.nodeid + "|setup")

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_call(self, item: pytest.Item) -> None:
            measured.switch_context(item.nodeid + "|run")

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            seconds[report.nodeid] += report.duration
            if report.outcome != "passed":
                failed.add(report.nodeid)

    measured.start()
    status = int(pytest.main([*PYTEST, "--maxfail=1000000", "--timeout=300", file], plugins=[Contexts()]))
    measured.stop()
    passed = {test: round(took, 3) for test, took in seconds.items() if test not in failed}
    groups, shared = _groups(measured.get_data(), list(passed), tree)
    loaded = {Path(path) for module in list(sys.modules.values()) if (path := getattr(module, "__file__", None))}
    helpers = {str(path.relative_to(tree)) for path in loaded if path.is_relative_to(tree / "tests")}
    depends = {file, *helpers, *shared, *(path for _, lines in groups for path in lines)}
    known = Measurement(file, passed, {path: digest(tree / path) for path in sorted(depends)}, groups, shared)
    _write(known)
    return status


def _write(known: Measurement) -> None:
    path = _path(known.test_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(f".{os.getpid()}").write_text(json.dumps(vars(known)))
    path.with_suffix(f".{os.getpid()}").replace(path)


def _groups(
    data: Any, tests: Sequence[str], tree: Path
) -> tuple[list[tuple[str, dict[str, list[int]]]], dict[str, list[int]]]:
    bits = {test: 1 << number for number, test in enumerate(tests)}
    groups: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    shared: dict[str, list[int]] = defaultdict(list)
    for path in data.measured_files():
        name = Path(path).relative_to(tree).as_posix()
        for line, contexts in data.contexts_by_lineno(path).items():
            parts = [context.rpartition("|") for context in contexts if context]
            if bit := sum({bits.get(test, 0) for test, _, _ in parts}):
                groups[bit][name].append(line)
            if any(phase == "setup" for _, _, phase in parts):
                shared[name].append(line)
    return [(f"{bit:x}", lines) for bit, lines in groups.items()], shared


class Covering:
    """For each line of the package, the tests that run it."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        """Take measurements."""
        self.seconds: dict[str, float] = {}
        self.files: dict[str, list[str]] = {}
        """Test files, and their tests."""
        self._groups: dict[tuple[str, int], list[tuple[list[str], int]]] = defaultdict(list)
        self._shared: dict[tuple[str, int], list[list[str]]] = defaultdict(list)
        for known in measurements:
            tests = list(known.seconds)
            self.seconds |= known.seconds
            self.files[known.test_file] = tests
            for bits, lines in known.groups:
                for path, numbers in lines.items():
                    for line in numbers:
                        self._groups[path, line].append((tests, int(bits, 16)))
            for path, numbers in known.shared.items():
                for line in numbers:
                    self._shared[path, line].append(tests)

    def tests(self, path: str, lines: Iterable[int]) -> tuple[set[str], set[str]]:
        """Tests that run one of the lines, and other tests of files whose fixtures run one."""
        run, others = set(), set()
        for line in lines:
            for tests, bits in self._groups.get((path, line), ()):
                run |= {test for number, test in enumerate(tests) if bits >> number & 1}
            for tests in self._shared.get((path, line), ()):
                others |= set(tests)
        return run, others - run

    def lines(self, path: str) -> set[int]:
        """Lines of a file that some test runs."""
        return {line for known, line in self._groups if known == path}
