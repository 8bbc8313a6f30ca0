"""Run tests of a file with unittest, and print the outcome of each as a line of JSON: pytest cannot run those of Triton's base class."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
import unittest
from collections.abc import Iterator


class _Result(unittest.TextTestResult):
    """Keeps the first problem of each test."""

    problems: dict[str, str]

    def startTestRun(self):
        self.problems = {}

    def addError(self, test, err):
        super().addError(test, err)
        self._keep(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._keep(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._keep(test, err)

    def _keep(self, test, err):
        text = traceback.format_exception_only(*err[:2])[-1].strip()
        self.problems.setdefault(test.id(), text.partition("\n")[0])


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from _tests(part)
        else:
            yield part


def main() -> int:
    """Run the module's tests that are named, or list all where none is; gives the exit code."""
    sys.path.insert(0, "")
    module, *names = sys.argv[1:]
    tests = list(_tests(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))))
    if not names:
        print(json.dumps([test.id() for test in tests]))
        return 0
    wanted = [test for test in tests if test.id() in names]
    runner = unittest.TextTestRunner(sys.stderr, verbosity=2, resultclass=_Result)  # type: ignore[arg-type]
    result = runner.run(unittest.TestSuite(wanted))
    for test in wanted:
        print("\n" + json.dumps({"test": test.id(), "problem": result.problems.get(test.id())}))  # type: ignore[attr-defined]
    return 0


if __name__ == "__main__":
    sys.exit(main())
