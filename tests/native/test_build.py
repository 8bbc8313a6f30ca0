"""The command that builds the native part says what a machine lacks."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from pytrtplugins import _native_build
from pytrtplugins.errors import BuildError, UnavailableError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(tmp_path):
    """Run the command where only the given tools are on the path."""

    def command_(*arguments, **environment):
        return subprocess.run(
            [sys.executable, "-m", "pytrtplugins.native", *arguments],
            env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return command_


def test_without_a_compiler_it_says_so_and_fails(command):
    done = command()
    assert (done.returncode, done.stdout) == (1, "")
    first, do = done.stderr.splitlines()
    assert first == "plugins in C++ are not built; the rest of the package works."
    assert do.startswith("Do: apt-get install g++")
    assert do.endswith("python -m pytrtplugins.native")


def test_if_possible_it_says_so_and_succeeds(command):
    done = command("--if-possible")
    assert done.returncode == 0
    assert "Do: apt-get install g++" in done.stderr


@pytest.mark.parametrize(("error", "status"), [(UnavailableError("no g++"), 0), (BuildError("cmake failed"), 1)])
def test_what_is_wrong_is_printed_and_only_what_is_missing_may_be_no_failure(monkeypatch, capsys, error, status):
    def build(show):
        raise error

    monkeypatch.setattr(_native_build, "build", build)
    assert (_native_build.main([]), _native_build.main(["--if-possible"])) == (1, status)
    assert capsys.readouterr().err == f"{error}\n" * 2


def test_a_compiler_that_fails_is_an_error_even_if_possible(command, tmp_path, monkeypatch):
    broken = tmp_path / "c++"
    broken.write_text(f"#!{sys.executable}\nraise SystemExit('this compiler is broken')\n")
    broken.chmod(0o755)
    if _native_build.missing():
        pytest.skip("the other parts of the build are missing here")
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(BuildError, match="cmake"):
        _native_build._build(ROOT, tmp_path / "build")


def test_each_thing_that_lacks_has_its_command(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(_native_build.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(_native_build.sysconfig, "get_paths", lambda: {"include": "/nowhere"})
    assert _native_build.missing() == [
        "apt-get install g++", "apt-get install python3-dev", 'pip install "pytrtplugins[native]"']  # fmt: skip
    with pytest.raises(UnavailableError, match="python3-dev and then pip install"):
        _native_build.build()


@pytest.mark.parametrize("package", ["cmake", "pybind11"])
def test_either_package_that_lacks_has_the_same_command(monkeypatch, package):
    monkeypatch.setattr(_native_build, "_compiler", lambda: "c++")
    monkeypatch.setattr(_native_build, "_cmake", lambda: None if package == "cmake" else "cmake")
    monkeypatch.setattr(_native_build.importlib.util, "find_spec", lambda name: None if name == package else name)
    assert _native_build.missing()[-1:] == ['pip install "pytrtplugins[native]"']


@pytest.mark.parametrize(
    ("there", "variable", "expected"),
    [
        (["c++", "g++", "clang++"], None, "c++"),
        (["clang++", "g++"], "", "g++"),
        (["clang++"], None, "clang++"),
        ([], None, None),
        (["c++", "icpx"], "icpx", "icpx"),
        (["c++"], "icpx", None),
    ],
)
def test_the_compiler_is_that_of_cxx_or_the_first_of_the_usual_ones(monkeypatch, there, variable, expected):
    monkeypatch.delenv("CXX", raising=False)
    if variable is not None:
        monkeypatch.setenv("CXX", variable)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in there else None)
    assert _native_build._compiler() == expected


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["pytrtplugins/CMakeLists.txt", "../../../../share/pytrtplugins/CMakeLists.txt"], "share/pytrtplugins"),
        (["share/pytrtplugins/CMakeLists.txt"], "lib/a/b/c/share/pytrtplugins"),
        (["../share/pytrtplugins/src/CMakeLists.txt", "../share/other/CMakeLists.txt"], None),
        (None, None),
    ],
)
def test_an_installation_has_its_sources_where_its_list_of_files_says(monkeypatch, tmp_path, files, found):
    root = tmp_path / "lib/a/b/c"
    root.mkdir(parents=True)

    class File(PurePosixPath):
        def locate(self):
            return root / self

    monkeypatch.setattr(_native_build, "PACKAGE", root / "pytrtplugins")
    monkeypatch.setattr(importlib.metadata, "files", lambda name: files and [File(file) for file in files])
    if found is None:
        with pytest.raises(UnavailableError, match="no C\\+\\+ sources"):
            _native_build.source_dir()
    else:
        assert _native_build.source_dir() == tmp_path / found


def test_a_checkout_keeps_its_objects_and_an_installation_does_not(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(_native_build, "missing", lambda: [])
    monkeypatch.setattr(_native_build, "_build", lambda source, folder, show: calls.append((source, folder)) or "")
    monkeypatch.setattr(_native_build, "source_dir", lambda: _native_build.PACKAGE.parent)
    _native_build.build()
    assert calls.pop() == (ROOT, ROOT / "build" / f"native-{sys.implementation.cache_tag}")
    monkeypatch.setattr(_native_build, "source_dir", lambda: tmp_path)
    _native_build.build()
    (source, folder) = calls.pop()
    assert source == tmp_path
    assert not folder.exists()


@pytest.mark.parametrize(
    ("option", "file"), [("--include", "pytrtplugins/plugin.h"), ("--cmake-dir", "pytrtpluginsConfig.cmake")]
)
def test_the_folder_for_a_compiler_or_find_package_is_printed(command, option, file):
    assert (Path(command(option).stdout.strip()) / file).is_file()


@pytest.fixture
def fake_cmake(tmp_path, monkeypatch):
    """A cmake that prints what the real one does, and a warning, and fails where it compiles ``broken``."""
    cmake = tmp_path / "cmake"
    cmake.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "if sys.argv[1] == '-S': print('-- Configuring done\\n-- pytrtplugins: on the CPU only')\n"
        "if sys.argv[1] == '--build':\n"
        "    print('[ 50%] Building CXX object a.cpp.o\\na.cpp:1: warning: unused', flush=True)\n"
        "    print('[2/2] Linking', flush=True)\n"
        "    if 'broken' in sys.argv[2]: sys.exit('a.cpp:7: error: expected ;')\n"
        "if sys.argv[1] == '--install': assert sys.argv[3:] == ['--component', 'python']\n"
    )
    cmake.chmod(0o755)
    monkeypatch.setattr(_native_build, "_cmake", lambda: str(cmake))


def test_a_build_shows_each_step_and_its_time(fake_cmake, tmp_path):
    shown: list[str] = []
    result = _native_build._build(ROOT, tmp_path / "build", shown.append)
    assert shown[0] == f"configuring in {tmp_path / 'build'}"
    assert shown[1].startswith("compiling, ")
    assert shown[2:] == ["[ 50%] Building CXX object a.cpp.o", "[2/2] Linking"]
    first, note = result.splitlines()
    assert re.fullmatch(r"plugins in C\+\+ are built, in \d+ s\.", first)
    assert note == "on the CPU only"


def test_a_build_that_fails_ends_with_the_compilers_words(fake_cmake, tmp_path):
    with pytest.raises(BuildError, match=r"warning: unused\n(.*\n)*a\.cpp:7: error: expected ;"):
        _native_build._build(ROOT, tmp_path / "broken")


def test_an_installation_has_every_file_of_the_native_part():
    section = (ROOT / "pyproject.toml").read_text().partition("[tool.setuptools.data-files]")[2].partition("\n[")[0]
    listed = {file for pattern in re.findall(r'[\[ ]"([^"]+)"', section) for file in ROOT.glob(pattern)}
    folders = [ROOT / "plugins" / name for name in ("bridge", "cmake", "include", "layers", "tensorrt")]
    files = {file for folder in folders for file in folder.rglob("*") if file.is_file()}
    kernels = {file for file in (ROOT / "pytrtplugins" / "kernels").iterdir() if file.is_file()}
    assert (files | kernels | {ROOT / "CMakeLists.txt", ROOT / "pytrtplugins/version.py"}) - listed == set()


def configured(folder, *options):
    """What ``cmake -S . -B build`` ends with, and its messages on one line."""
    cmake = shutil.which("cmake") or pytest.skip("cmake is not installed")
    done = subprocess.run(
        [cmake, "-S", str(ROOT), "-B", str(folder), *options], capture_output=True, text=True, check=False
    )
    return done.returncode, " ".join(done.stderr.split())


def test_cmake_names_the_python_that_lacks_pybind11_and_what_to_type(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$2" = pybind11 ] && exit 1\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    code, message = configured(tmp_path / "build", f"-DPython_EXECUTABLE={python}")
    assert code
    assert f'{python} has no package pybind11. Do: {python} -m pip install "pybind11>=2.13"' in message
    assert "Or leave Python out: -DPYTRTPLUGINS_BRIDGE=OFF" in message


def test_cmake_needs_no_python_where_that_is_left_out(tmp_path):
    assert configured(tmp_path / "build", "-DPYTRTPLUGINS_BRIDGE=OFF") == (0, "")
