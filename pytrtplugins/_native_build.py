"""Build the native part of this installation: ``python -m pytrtplugins.native``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .errors import BuildError, UnavailableError

__all__ = ["COMMAND", "build", "main", "missing", "source_dir"]

COMMAND = "python -m pytrtplugins.native"
PACKAGE = Path(__file__).parent


def source_dir() -> Path:
    """The folder of ``CMakeLists.txt``: the checkout, or what was installed of it beside the package.

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
    """One command for each thing that the build needs and this machine lacks."""
    commands = []
    if _compiler() is None:
        commands.append("apt-get install g++")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        commands.append("apt-get install python3-dev")
    if _cmake() is None or importlib.util.find_spec("pybind11") is None:
        commands.append('pip install "pytrtplugins[native]"')
    return commands


def build() -> str:
    """Compile ``pytrtplugins._native`` and the C++ layers into the installed package.

    Returns:
        What was built.

    Raises:
        UnavailableError: something that the build needs is missing.
        BuildError: the compiler failed.
    """
    if lacking := missing():
        raise UnavailableError(
            "plugins in C++ are not built; all else of the package works.\nDo: "
            + " and then ".join([*lacking, COMMAND])
        )
    source = source_dir()
    if source == PACKAGE.parent:
        return _build(source, source / "build" / f"native-{sys.implementation.cache_tag}")
    with tempfile.TemporaryDirectory() as folder:
        return _build(source, Path(folder))


def main(arguments: Sequence[str]) -> int:
    """The command; with ``--if-possible`` a machine that lacks something is told so and is no failure."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Build the native part of pytrtplugins.")
    parser.add_argument(
        "--if-possible", action="store_true", help="succeed where something that the build needs is missing"
    )
    parser.add_argument("--include", action="store_true", help="print the folder of the C++ headers instead")
    options = parser.parse_args(arguments)
    try:
        print(source_dir() / "plugins" / "include" if options.include else build())
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 0 if options.if_possible else 1
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _build(source: Path, folder: Path) -> str:
    cmake = _cmake()
    settings = [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_INSTALL_PREFIX={PACKAGE.parent}"]
    configured = _run(cmake, "-S", source, "-B", folder, *settings)
    _run(cmake, "--build", folder, "--parallel", os.cpu_count() or 1)
    _run(cmake, "--install", folder)
    notes = [
        line.partition("pytrtplugins: ")[2] for line in configured.splitlines() if line.startswith("-- pytrtplugins: ")
    ]
    return "\n".join(["plugins in C++ are built.", *notes])


def _run(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode:
        shown = " ".join(map(str, command))
        raise BuildError(f"plugins in C++: {shown} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def _compiler() -> str | None:
    """What CMake takes: ``CXX``, else the usual names."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next(filter(None, map(shutil.which, names)), None)


def _cmake() -> str | None:
    """The package's cmake beside this Python, else the machine's."""
    beside = Path(sys.executable).parent / "cmake"
    return str(beside) if beside.is_file() else shutil.which("cmake")
