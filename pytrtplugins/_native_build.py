"""Build the native part of this installation: ``python -m pytrtplugins.native``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .errors import BuildError, UnavailableError

__all__ = ["COMMAND", "build", "main", "missing", "source_dir"]

COMMAND = "python -m pytrtplugins.native"
PACKAGE = Path(__file__).parent
NOTE = "-- pytrtplugins: "
"""How CMake's messages begin that the result repeats."""


def source_dir() -> Path:
    """Return the folder of ``CMakeLists.txt``: the checkout, or the sources installed with the package.

    Raises:
        UnavailableError: the package was installed without its C++ sources.
    """
    if (PACKAGE.parent / "plugins" / "include").is_dir():
        return PACKAGE.parent
    import importlib.metadata  # here, since it imports the parsers of e-mail: 20 ms

    for file in importlib.metadata.files("pytrtplugins") or ():
        if file.parts[-3:] == ("share", "pytrtplugins", "CMakeLists.txt"):
            return Path(str(file.locate())).resolve().parent
    raise UnavailableError(
        "plugins in C++: this installation has no C++ sources.\nDo: pip install --force-reinstall --no-deps pytrtplugins"
    )


def missing() -> list[str]:
    """Return a command for each missing requirement of the build."""
    commands = []
    if _compiler() is None:
        commands.append("apt-get install g++")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        commands.append("apt-get install python3-dev")
    if _cmake() is None or importlib.util.find_spec("pybind11") is None:
        commands.append('pip install "pytrtplugins[native]"')
    return commands


def build(show: Callable[[str], object] = lambda line: None) -> str:
    """Compile ``pytrtplugins._native`` and the C++ layers into the installed package.

    Args:
        show: Is given a line for each step and each file that is compiled.

    Returns:
        What was built.

    Raises:
        UnavailableError: something that the build needs is missing.
        BuildError: the compiler failed.
    """
    if commands := missing():
        raise UnavailableError(
            "plugins in C++ are not built; the rest of the package works.\nDo: "
            + " and then ".join([*commands, COMMAND])
        )
    source = source_dir()
    if source == PACKAGE.parent:
        return _build(source, source / "build" / f"native-{sys.implementation.cache_tag}", show)
    with tempfile.TemporaryDirectory() as folder:
        return _build(source, Path(folder), show)


def main(arguments: Sequence[str]) -> int:
    """Run the command; with ``--if-possible`` a missing requirement is printed and does not count as failure."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Build the native part of pytrtplugins.")
    parser.add_argument(
        "--if-possible", action="store_true", help="succeed where something that the build needs is missing"
    )
    parser.add_argument("--include", action="store_true", help="print the folder of the C++ headers instead")
    parser.add_argument(
        "--cmake-dir", action="store_true", help="print the folder for find_package(pytrtplugins) instead"
    )
    options = parser.parse_args(arguments)
    try:
        if options.include or options.cmake_dir:
            print(source_dir() / "plugins" / ("include" if options.include else "cmake"))
        else:
            print(build(show=lambda line: print(line, file=sys.stderr, flush=True)))
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 0 if options.if_possible else 1
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _build(source: Path, folder: Path, show: Callable[[str], object] = lambda line: None) -> str:
    cmake, processes, begin = _cmake(), os.cpu_count() or 1, time.monotonic()
    settings = [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_INSTALL_PREFIX={PACKAGE.parent}"]

    def show_step(line: str) -> None:
        if re.match(r"\[ *\d+%\]|\[\d+/\d+\]", line):  # of make; of ninja
            show(line)

    show(f"configuring in {folder}")
    cmake_output = _run(lambda line: None, cmake, "-S", source, "-B", folder, *settings)
    show(f"compiling, {processes} files at a time")
    _run(show_step, cmake, "--build", folder, "--parallel", processes)
    _run(show_step, cmake, "--install", folder, "--component", "python")
    notes = [line.removeprefix(NOTE) for line in cmake_output.splitlines() if line.startswith(NOTE)]
    return "\n".join([f"plugins in C++ are built, in {time.monotonic() - begin:.0f} s.", *notes])


def _run(show: Callable[[str], object], *command: object) -> str:
    """Run a command, show each line of its output at once, and return all of it."""
    words = [str(word) for word in command]
    lines = []
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            show(line.rstrip("\n"))
            lines.append(line)
    output = "".join(lines)
    if process.returncode:
        raise BuildError(f"plugins in C++: {' '.join(words)} failed:\n{output[-8000:]}")
    return output


def _compiler() -> str | None:
    """Return the C++ compiler that CMake uses: ``CXX``, else the first of the usual names; None if there is none."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next(filter(None, map(shutil.which, names)), None)


def _cmake() -> str | None:
    """Return the cmake next to this Python, else the one on PATH; None if there is none."""
    local_cmake = Path(sys.executable).parent / "cmake"
    return str(local_cmake) if local_cmake.is_file() else shutil.which("cmake")
