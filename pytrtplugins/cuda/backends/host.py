"""Kernels on a CPU: the same source, compiled by a C++ compiler, one thread of the grid after the other."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import PytrtpluginsError, UnavailableError
from ..cache import cached_file
from ..record import Constant
from ..signature import C_TYPES, Parameter
from ..source import KERNELS, CompileUnit, compile_error

__all__ = ["Launch", "available", "build", "compiler", "load", "open_library", "require_host", "source_file"]

Launch = Callable[[tuple[int, int, int], tuple[int, int, int], Sequence[Any]], None]
_OPTIONS = shlex.split("-std=c++17 -O2 -U_FORTIFY_SOURCE -fPIC -ffp-contract=off -fwrapv -w")
_FLAGS = ("-x", "c++", *_OPTIONS, "-shared")
_HEADERS = "#include <pthread.h>\n#include <cmath>\n#include <cstdint>\n#include <cstring>\n"  # of host_shim.h


@functools.cache
def compiler() -> tuple[str, str]:
    """Path and version of the C++ compiler; empty where there is none."""
    path = shutil.which("g++") or shutil.which("clang++") or ""
    if not path:
        return "", ""
    version = subprocess.run(
        [path, "--version"], capture_output=True, encoding="utf-8", errors="replace", check=False
    ).stdout
    return path, version.partition("\n")[0]


def available() -> bool:
    """Whether kernels can be compiled for this CPU."""
    return bool(compiler()[0])


def require_host(unit: CompileUnit) -> None:
    """Refuse what a CPU cannot run.

    Raises:
        UnavailableError: there is no C++ compiler, or the kernel needs what the host does not have.
    """
    if not available():
        raise UnavailableError(
            f"kernel {unit.signature.name}: the arrays are NumPy's, and a kernel runs on a CPU through a C++ compiler, which "
            "is not installed.\nDo: apt-get install g++"
        )
    if "extern __shared__" in unit.source:
        raise UnavailableError(f"kernel {unit.signature.name} uses dynamic shared memory: it runs on a GPU only")


def load(unit: CompileUnit) -> Launch:
    """Compile a kernel, or find it in the cache.

    Returns:
        Runs it: grid, block, one value for each parameter.

    Raises:
        UnavailableError: there is no C++ compiler, or the kernel needs what the host does not have.
        KernelError: the kernel does not compile.
    """
    path = build(
        unit,
        unit.host_code(),
        _FLAGS,
        ".so",
        lambda log, title: compile_error(unit, log, f"{title}, for the CPU"),
        _quick_flags,
    )
    return open_library(path, unit)[1]


def build(
    unit: CompileUnit,
    code: str,
    flags: Sequence[str],
    suffix: str,
    error: Callable[[str, str], PytrtpluginsError],
    quick: Callable[[], Sequence[str]] = tuple,
) -> Path:
    """Compile a text for the CPU with a kernel's own definitions and folders, or find the result in the cache.

    Args:
        unit: The kernel.
        code: The text.
        flags: For the compiler.
        suffix: Of the result.
        error: Makes the error for a text that does not compile, from the compiler's log and name.
        quick: Gives more flags, which only save time; left out where the compiler fails with them.
    """
    require_host(unit)
    path, version = compiler()
    options = [option for option in unit.options if option.startswith(("-D", "-I"))]
    if Path(path).name == "g++":  # whose libraries would share __shared__ variables of kernels that are named alike
        options.append("-fno-gnu-unique")

    def compile_to(target: Path) -> None:
        with source_file(code) as source:
            command = [path, *flags, *options, f"-I{KERNELS / 'host'}", str(source), "-o", str(target)]
            more = quick()
            done = _run([*command, *more])
            if done.returncode and more:
                done = _run(command)
        if done.returncode:
            raise error(done.stderr, version)

    return cached_file([code, *options, *flags, version], suffix, compile_to)


@functools.cache
def _quick_flags() -> tuple[str, ...]:
    """Options for faster compilation by g++: precompiled standard headers, and the gold linker."""
    path, version = compiler()
    linker = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()

    def compile_to(target: Path) -> None:
        with source_file(_HEADERS) as source:
            done = _run([path, "-x", "c++-header", *_OPTIONS, "-fno-gnu-unique", str(source), "-o", str(target)])
        done.check_returncode()

    if Path(path).name != "g++":
        return linker
    try:
        headers = cached_file([_HEADERS, *_OPTIONS, version], ".gch", compile_to)
    except subprocess.CalledProcessError:
        return linker
    return ("-include", str(headers.with_suffix("")), *linker)  # g++ looks for NAME.gch first


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)


@contextlib.contextmanager
def source_file(code: str) -> Iterator[Path]:
    """Write the text to a temporary file, which is deleted at the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cpp"
        source.write_text(code, encoding="utf-8")
        yield source


def open_library(path: Path, unit: CompileUnit) -> tuple[ctypes.CDLL, Launch]:
    """Load a compiled kernel; return the library and a function that launches it."""
    library = ctypes.CDLL(str(path))
    function = library.pytrt_launch
    function.restype = None
    function.argtypes = [ctypes.POINTER(ctypes.c_uint)] * 2 + [
        _ctype(parameter) for parameter in unit.signature.parameters
    ]

    def launch(grid: tuple[int, int, int], block: tuple[int, int, int], values: Sequence[Any]) -> None:
        function((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), *map(_value, values))

    return library, launch


def _ctype(parameter: Parameter) -> Any:
    if parameter.pointer:
        return ctypes.c_void_p
    kind = np.dtype(C_TYPES[parameter.type])
    return _Half if kind == np.float16 else np.ctypeslib.as_ctypes_type(kind)


class _Half(ctypes.c_uint16):
    """A number as the bits of a ``__half``, which ctypes does not know."""

    @classmethod
    def from_param(cls, value: float) -> ctypes.c_uint16:
        with np.errstate(over="ignore"):
            return ctypes.c_uint16(int(np.float16(value).view(np.uint16)))


def _value(value: Any) -> Any:
    if isinstance(value, Constant):
        value = value.array
    return value.ctypes.data if isinstance(value, np.ndarray) else value
