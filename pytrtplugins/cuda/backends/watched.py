"""Kernels on a CPU with checked memory accesses: each access is compiled as a call, which kernels/host_watch.cpp implements."""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import KernelError
from ...utils.forks import ForkLock
from ..cache import cached_file
from ..source import KERNELS, CompileUnit
from ..watch import Finding, Plan, Region, Watch, current
from . import host

__all__ = ["load"]

_CHECKS = "thread,signed-integer-overflow,integer-divide-by-zero,bounds,alignment"
_FLAGS = shlex.split(
    "-x c++ -std=c++17 -O1 -gdwarf-4 -fno-omit-frame-pointer -fPIC -ffp-contract=off -w -U_FORTIFY_SOURCE "
    f"-fsanitize={_CHECKS} -fno-sanitize-recover=all -DPYTRT_HOST_WATCH"
)
_PLAIN = shlex.split("-x c++ -std=c++17 -O2 -fPIC -w -U_FORTIFY_SOURCE -fvisibility=hidden")
_NONE, _OUTSIDE, _READ_ONLY, _RACE, _OVERFLOW, _BOUNDS, _MISALIGNED, _DIVISION, _SIGNAL, _TIME = range(10)
_SHARED = -2
_TURN = ForkLock()  # one launch at a time: handlers of signals belong to the process, a plan to its library


def load(unit: CompileUnit) -> host.Launch:
    """Compile a kernel so that its launches are watched, or find it in the cache.

    Returns:
        Runs it as the current `Watch` says; as `host.load` does where the compiler cannot watch, which the watch counts.

    Raises:
        UnavailableError: there is no C++ compiler, or the kernel needs what the host does not have.
        KernelError: the kernel does not compile; a launch raises it for a defect, with ``.defect``, ``.line`` and ``.thread``.
    """
    host.require_host(unit)
    try:
        path = _build(unit)
    except _CannotWatchError:
        plain = host.load(unit)  # says what is wrong where the kernel itself is

        def unwatched(grid: Any, block: Any, values: Sequence[Any]) -> None:
            if watch := current():
                watch.unwatched += 1
            plain(grid, block, values)

        return unwatched
    library, run = host.open_library(path, unit)
    plan = Plan.in_dll(library, "pytrt_watch_plan")

    def launch(grid: tuple[int, int, int], block: tuple[int, int, int], values: Sequence[Any]) -> None:
        watch = current() or Watch()
        with _TURN:
            kept = watch.fill(plan)
            run(grid, block, values)
            del kept
            watch.watched += 1
            if plan.unset.kind and not watch.unset:
                watch.unset = _unset_read_text(
                    _Facts(unit, path, watch.regions, grid, block, plan.unset), "uninitialized read"
                )
            if plan.found.kind:
                raise _error(_Facts(unit, path, watch.regions, grid, block, plan.found), watch.unset)

    return launch


class _CannotWatchError(Exception):
    """The compiler lacks an option, or the kernel does not compile."""


@functools.cache
def _runtime() -> Path:
    """host_watch.cpp, compiled."""
    path, version = host.compiler()
    source = KERNELS / "host_watch.cpp"
    text = source.read_text(encoding="utf-8") + (KERNELS / "host_watch.h").read_text(encoding="utf-8")

    def compile_to(target: Path) -> None:
        _run([path, *_PLAIN, "-c", str(source), "-o", str(target)])

    return cached_file([text, *_PLAIN, version], ".o", compile_to)


def _build(unit: CompileUnit) -> Path:
    path, version = host.compiler()
    code, options = unit.host_code(), [option for option in unit.options if option.startswith(("-D", "-I"))]
    runtime = _runtime()

    def compile_to(target: Path) -> None:
        with host.source_file(code) as source:
            object_file = source.with_suffix(".o")
            headers = [f"-I{KERNELS}", f"-I{KERNELS / 'host'}"]
            _run([path, *_FLAGS, *options, *headers, "-c", str(source), "-o", str(object_file)])
            _run([path, "-shared", "-Wl,-Bsymbolic", str(object_file), str(runtime), "-ldl", "-o", str(target)])

    return cached_file([code, *options, *_FLAGS, runtime.name, version], ".so", compile_to)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _CannotWatchError(done.stderr)


class _Facts:
    """The place of a finding, for messages: thread, block, line, memory."""

    def __init__(
        self,
        unit: CompileUnit,
        path: Path,
        regions: Sequence[Region],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        finding: Finding,
    ) -> None:
        self.unit, self.finding = unit, finding
        self.region = regions[finding.region] if finding.region >= 0 else None
        self.thread, self.block = _place(block, finding.thread), _place(grid, finding.block)
        self.other = _place(block, finding.other) if finding.other >= 0 else None
        self.line = _line(unit, path, finding)

    @property
    def where(self) -> str:
        return f"{self.unit.label}:{self.line}" if self.line else self.unit.label

    @property
    def element(self) -> int:
        """Index of the accessed element, from the start of the region."""
        return int(self.finding.offset) // int(self.region.dtype.itemsize) if self.region else 0

    @property
    def memory(self) -> str:
        """The accessed memory and element, for messages."""
        if self.region is None:
            return "shared memory" if self.finding.region == _SHARED else "memory"
        inside = 0 <= self.finding.offset < self.region.nbytes
        if not inside:
            return f"element {self.element} of {self.text}"
        index = [int(i) for i in np.unravel_index(self.element, self.region.dims)]
        return f"{self.region.name}{index}"

    @property
    def text(self) -> str:
        """The region with its dims."""
        assert self.region is not None
        size = self.region.nbytes // self.region.dtype.itemsize
        return f"{self.region.name} ({self.region.dtype}{list(self.region.dims)}, elements 0 to {size - 1})"


def _place(sizes: tuple[int, int, int], flat: int) -> tuple[int, int, int]:
    return flat % sizes[0], flat // sizes[0] % sizes[1], flat // (sizes[0] * sizes[1])


def _error(facts: _Facts, unset: str) -> KernelError:
    """The error of a finding; ``unset`` is what was read before without a value, which may be its cause."""
    finding, thread = facts.finding, f"thread {facts.thread}"
    kind = finding.kind
    doing = "writes" if finding.writes else "reads"
    if kind == _OUTSIDE:
        assert facts.region is not None
        size = facts.region.nbytes
        one = finding.offset == size or finding.offset == -facts.region.dtype.itemsize
        defect = f"out-of-bounds {'write' if finding.writes else 'read'}{', off by one' if one else ''}"
        what = f"{thread} {doing} {facts.memory}"
    elif kind == _READ_ONLY:
        defect, what = "write to an input", f"{thread} writes {facts.memory}, which must not change"
    elif kind == _RACE:
        shared = facts.region is None
        other = f"thread {facts.other}" if facts.other else "another thread"
        did = "read" if finding.writes else "wrote"
        defect = "race: missing barrier" if shared else "race"
        what = f"{thread} {doing} {facts.memory}, which {other} {did}, with no __syncthreads() between the two"
    elif kind == _OVERFLOW:
        defect, what = (
            "integer overflow",
            f"{thread}: a result does not fit into its integer type; compute in long long",
        )
    elif kind == _BOUNDS:
        defect, what = "out-of-bounds index", f"{thread} takes an element that an array in the kernel does not have"
    elif kind == _MISALIGNED:
        defect = "misaligned access"
        what = f"{thread} reads or writes at an address that its type's size does not divide"
    elif kind == _DIVISION:
        defect, what = "division by zero", f"{thread} divides an integer by 0, or the smallest one by -1"
    elif kind == _TIME:
        defect, what = "hang", f"{thread} still runs when the time is up"
    else:
        defect, what = (
            "crash",
            f"{thread} touches memory that is not there, at {finding.address:#x} (signal {finding.signal})",
        )
    cause = f"\nBefore that: {unset}" if unset and kind in (_OUTSIDE, _BOUNDS, _SIGNAL, _TIME, _DIVISION) else ""
    return KernelError(
        f"{defect}: {_located_text(facts, what)}{cause}",
        defect=defect,
        path=facts.unit.label,
        line=facts.line,
        thread=facts.thread,
    )


def _unset_read_text(facts: _Facts, defect: str) -> str:
    what = f"thread {facts.thread} reads {facts.memory} before anything wrote it"
    return f"{defect}: {_located_text(facts, what)}"


def _located_text(facts: _Facts, what: str) -> str:
    lines = facts.unit.source.splitlines()
    shown = f"\n    {facts.line:4} | {lines[facts.line - 1].rstrip()}" if facts.line else ""
    return f"{facts.where}: kernel {facts.unit.instance}: {what} (block {facts.block}){shown}"


def _line(unit: CompileUnit, path: Path, finding: Finding) -> int:
    """The line of the source, from what the compiler says, or from the library's debugging information; 0 if unknown."""
    label = unit.label.replace("\\", "/").replace('"', "'")
    if finding.line and (finding.text or b"").decode(errors="replace") == label:
        return int(finding.line)
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if not tool or finding.place <= 0:
        return 0
    command = [tool, "-i", "-e", str(path), hex(finding.place - 1)]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for row in output.splitlines():
        file, _, rest = row.rpartition(":")
        number = rest.split()[0] if rest.split() else ""
        if file.endswith(label) and number.isdigit() and 1 <= int(number) <= len(unit.source.splitlines()):
            return int(number)
    return 0
