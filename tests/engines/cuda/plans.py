"""Which plans and kernels the networks of tests become: ``python -m tests.engines.cuda.plans [TEST_FILE...]`` lists them.

plans.txt has a line for each test in `FOLDERS`: how many steps of each kind its plans have, a checksum of these plans, a
checksum of what is generated for its kernels, without the files in kernels/engine, and the test. A change of one of them may be wanted,
and is to be seen.
"""

from __future__ import annotations

import functools
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest

from pytrtplugins.engines.cuda.device.generated import GeneratedKernel
from pytrtplugins.engines.cuda.device.source import KERNELS, sources
from tests.engines.cuda.operators.steps import steps_text

LIST = Path(__file__).with_suffix(".txt")
HERE = LIST.parent
FOLDERS = ("device", "lower", "plan")
_plans: list[Any] = []
_kernels: set[str] = set()


def note_plan(plan: Any) -> None:
    """Add a plan to those of the test that runs."""
    _plans.append(plan)


def _facts(plan: Any) -> str:
    """All that a plan decides, as text."""
    steps = [f"{step.kind} {step.op} {step.name} {step.inputs} {step.outputs} {step.capturable}" for step in plan.steps]
    tensors = [f"{name} {placed.format} {placed.storage} {placed.offset}" for name, placed in plan.tensors.items()]
    return "\n".join([*steps, *tensors, f"{plan.memory} {plan.schedule} {plan.inputs} {plan.outputs}"])


@functools.cache
def _generated(text: str) -> str:
    """The source of a kernel without the files that it begins with or includes."""
    for file in sorted(KERNELS.glob("*.cu")):
        text = text.replace(sources(file.name), file.name)
    return text


def _line() -> str:
    kinds = Counter(kind for plan in _plans for kind in steps_text(plan).split())
    sums = (zlib.crc32("\n".join(texts).encode()) for texts in (map(_facts, _plans), sorted(_kernels)))
    return f"{','.join(f'{kind}:{count}' for kind, count in sorted(kinds.items())) or 'none'} {'-'.join(f'{each:08x}' for each in sums)}"


@functools.cache
def _listed() -> dict[str, str]:
    """Lines by test; empty for another version of ONNX, which names other tensors."""
    version, *lines = LIST.read_text().splitlines() if LIST.is_file() else [""]
    return {
        test: f"{kinds} {sums}"
        for kinds, sums, test in (line.split(" ", 2) for line in lines if version == onnx.__version__)
    }


class Listed:
    """A plugin of pytest: it compares the plans and kernels of each test with the list, or makes the list."""

    def __init__(self, lines: dict[str, str] | None = None) -> None:
        self._lines = lines

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Any:
        path = item.path
        if path.parent.name not in FOLDERS or path.parent.parent != HERE or item.get_closest_marker("hypothesis"):
            return (yield)
        _plans.clear()
        _kernels.clear()
        make = GeneratedKernel.__init__

        def noted(self: Any, device: Any, text: str, *arguments: Any, **more: Any) -> None:
            _kernels.add(f"{_generated(text)}{arguments}{more}")
            make(self, device, text, *arguments, **more)

        GeneratedKernel.__init__ = noted
        try:
            result = yield
        finally:
            GeneratedKernel.__init__ = make
        if _plans or _kernels:
            name, line = f"{path.relative_to(HERE)}::{item.name}", _line()
            if self._lines is not None:
                self._lines[name] = line
            wanted = line if self._lines is not None else _listed().get(name, line)
            assert line == wanted, "other plans or kernels\nDo: python -m tests.engines.cuda.plans, if they are wanted"
        return result


def write(paths: list[str]) -> int:
    """Make the list, or the lines of some test files in it."""
    lines = dict(_listed()) if paths else {}
    paths = paths or [str(HERE / folder) for folder in FOLDERS]
    status = pytest.main(["-q", "-m", "not slow", "-p", "no:cacheprovider", *paths], plugins=[Listed(lines)])
    LIST.write_text("\n".join([onnx.__version__, *(f"{lines[name]} {name}" for name in sorted(lines))]) + "\n")
    return int(status)


if __name__ == "__main__":
    from tests.engines.cuda import plans

    sys.exit(plans.write(sys.argv[1:]))  # the module that the tests have, which is not this one
