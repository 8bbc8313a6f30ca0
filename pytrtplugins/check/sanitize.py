"""Rules of `check_plugin(..., sanitize=True)`: kernels under AddressSanitizer on a CPU, under compute-sanitizer on a GPU.

The launches of `enqueue` are recorded, and repeated by themselves in a program that is started for it: with each array in
memory of exactly its size.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..cuda import CompileUnit, Constant, LaunchRecord, SymbolicArray
from ..cuda.backends import host
from ..cuda.signature import C_TYPES
from ..cuda.source import KERNELS
from ..errors import PytrtpluginsError, UnavailableError
from . import isolate, replay
from .cases import Case

__all__ = ["TOOLS", "address_sanitizer", "compute_sanitizer", "read_address_sanitizer", "read_compute_sanitizer"]

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_CHECKS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-sanitize=shift-base")
_FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-gdwarf-4", "-fno-omit-frame-pointer", "-ffp-contract=off", "-w", *_CHECKS)
_OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:color=never:exitcode=9", "UBSAN_OPTIONS": "color=never:exitcode=9"}
_FOUND = 9
_KERNELS_ONLY = ("--report-api-errors", "no")  # CuPy asks the driver for functions that it may lack
_MAIN = """
#include <cstdio>
#include <cstdlib>
static void pytrt_get(FILE* file, void* to, size_t size) { if (size && std::fread(to, size, 1, file) != 1) std::exit(8); }
static void* pytrt_take(FILE* file, long long& size) {
    pytrt_get(file, &size, sizeof size);
    if (size < 0) return nullptr;
    void* const memory = std::malloc(static_cast<size_t>(size));
    pytrt_get(file, memory, static_cast<size_t>(size));
    return memory;
}
"""


def address_sanitizer(case: Case) -> str:
    """Kernels access only their arrays, and nothing in them is undefined behaviour, as checked by g++'s sanitizers.

    Raises:
        UnavailableError: the C++ compiler has no AddressSanitizer, or `enqueue` does more than to launch kernels.
    """
    buffers = replay.Buffers(case)
    for launch in _launches(case):
        unit = CompileUnit(
            launch.kernel.source, launch.kernel.label, launch.kernel.signature, launch.element, launch.kernel.options
        )
        if 0 in launch.threads:
            continue
        report = _run_sanitized(unit, launch, buffers)
        if report:
            return report
    return ""


def compute_sanitizer(case: Case) -> str:
    """NVIDIA's compute-sanitizer finds no wrong access, race, uninitialized read or barrier error in the kernels on the GPU.

    Raises:
        UnavailableError: there is no compute-sanitizer or no GPU, or `enqueue` does more than to launch kernels.
    """
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if not program:
        raise UnavailableError("compute-sanitizer is not installed.\nDo: install the CUDA toolkit, which includes it")
    launches = list(_launches(case))
    with tempfile.TemporaryDirectory() as folder:
        replay.write(Path(folder), case, launches)
        command = [sys.executable, "-m", replay.__name__, folder]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(KERNELS.parents[1]), *sys.path])}
        before = _program(command, environment)  # compiles the kernels, so that the tools do not meet a compiler
        if before.returncode:
            raise UnavailableError(f"the launches cannot be repeated on a GPU: {before.stderr.strip()[-300:]}")
        for tool in TOOLS:
            options = ["--tool", tool, "--error-exitcode", str(_FOUND), *_KERNELS_ONLY]
            options += ["--padding", "64"] if tool == "memcheck" else []
            process = _program([program, *options, *command], environment)
            if process.returncode == _FOUND:
                return f"compute-sanitizer {tool}: {read_compute_sanitizer(process.stdout, [launch.kernel for launch in launches])}"
            if process.returncode:
                raise UnavailableError(
                    f"compute-sanitizer {tool} ends with {process.returncode}: {process.stdout.strip()[-300:]}"
                )
    return ""


def read_address_sanitizer(output: str, unit: CompileUnit) -> str:
    """Summarize the output of AddressSanitizer or UndefinedBehaviorSanitizer: kind of error and place, and the source line.

    The kernel's label is its file's name in it.
    """
    undefined = re.search(r"^(?P<file>[^\n]*?):(?P<line>\d+):\d+: runtime error: (?P<what>.*)$", output, re.MULTILINE)
    if undefined:
        return _finding_text(
            "UndefinedBehaviorSanitizer", undefined["what"], unit.label, unit.source, int(undefined["line"])
        )
    error = re.search(r"ERROR: AddressSanitizer: (?P<what>[\w-]+)", output)
    access = re.search(r"^(?P<what>READ|WRITE) of size \d+", output, re.MULTILINE)
    what = error["what"] if error else output.strip()[-300:]
    line = re.search(rf"^\s+#\d+ .*{re.escape(unit.label)}:(\d+)", output, re.MULTILINE)
    place = re.search(r"is located .*", output)
    parts = [what, *([access[0]] if access else []), *([place[0]] if place else [])]
    return _finding_text("AddressSanitizer", ", ".join(parts), unit.label, unit.source, int(line[1]) if line else 0)


_REPORT = re.compile(
    r"^========= (?P<what>(?:Invalid|Uninitialized|Misaligned|Barrier|Divergent|Error: (?:Potential )?(?:RAW|WAR|WAW|Race))[^\n]*)"
    r"(?P<rest>(?:\n========= {3,}[^\n]*)*)",
    re.MULTILINE,
)


def read_compute_sanitizer(output: str, kernels: Sequence[Any] = ()) -> str:
    """The first report that compute-sanitizer wrote, in two lines: what and where, and the line of source."""
    report = _REPORT.search(output)
    if report is None:
        summary = re.findall(r"^========= ((?:ERROR|RACECHECK) SUMMARY: .*)$", output, re.MULTILINE)
        return "; ".join(summary) or output.strip()[-300:]
    text = report[0]
    thread = re.search(r"by thread (\([\d,]+\)) in block (\([\d,]+\))", text)
    where = f", thread {thread[1]} of block {thread[2]}" if thread else ""
    place = re.search(r" in (?:\S*/)?([^\s/:]+):(\d+)", text)
    if not place:
        return f"{report['what']}{where}"
    source = next((kernel.source for kernel in kernels if kernel.label == place[1]), "")
    what = report["what"].partition(" at ")[0].rstrip(" .")
    return _finding_text(what, where.removeprefix(", "), place[1], source, int(place[2]))


def _finding_text(who: str, what: str, label: str, source: str, line: int) -> str:
    lines = source.splitlines()
    shown = f"\n    {line:4} | {lines[line - 1].rstrip()}" if 1 <= line <= len(lines) else ""
    return f"{who}: {label}{f':{line}' if line else ''}{what and ': '}{what}{shown}"


def _launches(case: Case) -> Iterator[LaunchRecord]:
    with case.runner() as runner:
        try:
            yield from runner.recorded_launches()
        except PytrtpluginsError:
            raise
        except Exception as error:
            what = f"enqueue does more than to launch kernels ({type(error).__name__}: {error})"
            raise UnavailableError(what) from error


def _run_sanitized(unit: CompileUnit, launch: LaunchRecord, buffers: replay.Buffers) -> str:
    program = _build(unit)
    head = np.array([*launch.grid, *launch.block], np.uint32).tobytes()
    parts, arrays = [head], list[tuple[Any, int]]()
    for parameter, value in zip(unit.signature.parameters, launch.arguments, strict=True):
        if not parameter.pointer:
            parts.append(np.dtype(C_TYPES[parameter.type]).type(value).tobytes())
            continue
        array = value.array if isinstance(value, Constant) else buffers.view(value) if value is not None else None
        parts.append(
            np.int64(-1 if array is None else array.nbytes).tobytes() + (b"" if array is None else array.tobytes())
        )
        if array is not None:
            arrays.append((array if isinstance(value, SymbolicArray) else None, array.nbytes))
    with tempfile.TemporaryDirectory() as folder:
        input_path, output_path = Path(folder) / "in", Path(folder) / "out"
        input_path.write_bytes(b"".join(parts))
        process = _program([str(program), str(input_path), str(output_path)], {**os.environ, **_OPTIONS})
        if process.returncode:
            return read_address_sanitizer(process.stderr, unit)
        data = output_path.read_bytes()
    offset = 0
    for array, size in arrays:
        if array is not None:
            array.reshape(-1).view(np.uint8)[...] = np.frombuffer(data, np.uint8, size, offset)
        offset += size
    return ""


def _build(unit: CompileUnit) -> Path:
    """The program that repeats one launch."""

    def error(log: str, title: str) -> UnavailableError:
        return UnavailableError(f"{title} cannot build with -fsanitize=address: {log.strip()[-300:]}")

    program = host.build(unit, _main_code(unit), _FLAGS, ".exe", error)
    program.chmod(0o700)
    return program


def _main_code(unit: CompileUnit) -> str:
    reads, names, writes = [], [], []
    for index, parameter in enumerate(unit.signature.parameters):
        kind = unit.typed(parameter.type)
        if parameter.pointer:
            reads.append(
                f"    long long pytrt_size{index};\n    void* const pytrt{index} = pytrt_take(in, pytrt_size{index});"
            )
            names.append(f"static_cast<{kind}*>(pytrt{index})")
            writes.append(f"    if (pytrt{index}) std::fwrite(pytrt{index}, 1, pytrt_size{index}, out);")
        else:
            reads.append(f"    {kind} pytrt{index};\n    pytrt_get(in, &pytrt{index}, sizeof pytrt{index});")
            names.append(f"pytrt{index}")
    body = "\n".join(reads)
    return (
        f'{unit.host_code()}{_MAIN}\nint main(int, char** files) {{\n    FILE* const in = std::fopen(files[1], "rb");\n'
        f"    unsigned grid[3], block[3];\n    pytrt_get(in, grid, sizeof grid);\n    pytrt_get(in, block, sizeof block);\n{body}\n"
        f"    pytrt_launch({', '.join(['grid', 'block', *names])});\n"
        f'    FILE* const out = std::fopen(files[2], "wb");\n{chr(10).join(writes)}\n    std::fclose(out);\n}}\n'
    )


def _program(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with isolate.unlimited_memory():  # sanitizers reserve addresses for all memory that there could be
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
