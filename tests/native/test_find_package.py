"""The project in samples/cpp_plugin, built as a user would, with each way to find the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytrtplugins import __version__, _native_build
from tests.kept_builds import build_once
from tests.pages import ROOT, texts

PROJECT = ROOT / "samples" / "cpp_plugin"


@pytest.fixture(scope="module")
def cmake():
    path = _native_build._cmake() or pytest.skip('cmake is not installed. Do: pip install "pytrtplugins[native]"')

    def cmake_(*arguments):
        return subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False)

    return cmake_


@pytest.fixture(scope="module")
def prefix(cmake, tmp_path_factory):
    """What ``cmake --install`` makes."""
    folder = tmp_path_factory.mktemp("prefix")
    for command in (
        ("-S", ROOT, "-B", folder / "build", "-DPYTRTPLUGINS_BRIDGE=OFF"),
        ("--install", folder / "build", "--prefix", folder / "installed"),
    ):
        done = cmake(*command)
        assert done.returncode == 0, done.stderr
    return folder / "installed"


@pytest.fixture(scope="module")
def pip_prefix(tmp_path_factory):
    """What pip makes of pyproject.toml's data files."""
    folder = tmp_path_factory.mktemp("pip")
    section = (
        (ROOT / "pyproject.toml").read_text("utf-8").partition("[tool.setuptools.data-files]")[2].partition("\n[")[0]
    )
    for target, patterns in re.findall(r'^"([^"]+)" = \[([^\]]+)\]', section, re.MULTILINE):
        (folder / target).mkdir(parents=True, exist_ok=True)
        for pattern in re.findall(r'"([^"]+)"', patterns):
            for file in filter(Path.is_file, ROOT.glob(pattern)):
                shutil.copy(file, folder / target)
    return folder


@pytest.fixture
def find(cmake, request, tmp_path):
    """Let CMake find a version of the package in a checkout, or below the folder of a fixture."""

    def find_(version, way="checkout"):
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES NONE)\n"
            f"find_package(pytrtplugins {version} REQUIRED)\n"
            'message(STATUS "found ${pytrtplugins_VERSION} ${pytrtplugins_INCLUDE_DIR}")\n'
        )
        checkout = f"-Dpytrtplugins_DIR={_native_build.source_dir() / 'plugins' / 'cmake'}"
        place = checkout if way == "checkout" else f"-DCMAKE_PREFIX_PATH={request.getfixturevalue(way)}"
        return cmake("-S", tmp_path, "-B", tmp_path / "build", place)

    return find_


@pytest.mark.parametrize(
    ("way", "headers"), [("checkout", "plugins"), ("prefix", "installed"), ("pip_prefix", "plugins")]
)
def test_the_package_and_its_headers_are_found(find, way, headers):
    done = find("0.1", way)
    assert done.returncode == 0, done.stderr
    ((version, include),) = re.findall(r"found (\S+) (.*)", done.stdout)
    assert [version] == re.findall(r"^\d+\.\d+\.\d+", __version__)
    assert Path(include).parts[-2:] == (headers, "include")
    assert (Path(include) / "pytrtplugins" / "plugin.h").is_file()


@pytest.mark.parametrize("asked", ["0.0", "0.2", "1.0", "0.1.99"])
def test_a_version_that_does_not_fit_is_refused(find, asked):
    done = find(asked)
    assert done.returncode
    assert f'compatible with requested version "{asked}"' in " ".join(done.stderr.split())


def test_the_sample_project_is_built_and_its_plugin_passes_the_check(built, cmake, prefix, tmp_path):
    settings = [
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DPython_EXECUTABLE={sys.executable}",
        "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
    ]
    library = tmp_path / "libacme.so"

    def build(path):
        for command in (("-S", PROJECT, "-B", tmp_path, *settings), ("--build", tmp_path)):
            done = cmake(*command)
            assert done.returncode == 0, done.stdout + done.stderr
        library.replace(path)

    sources = sorted(path for folder in (PROJECT, prefix) for path in folder.rglob("*") if path.is_file())
    flags = [os.environ.get(name, "") for name in ("CXX", "CXXFLAGS", "LDFLAGS")]
    build_once(library, sources, [*settings[1:], cmake("--version").stdout, *flags], build)
    done = subprocess.run(
        [sys.executable, PROJECT / "check.py", library],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ChannelShuffle: ok\n"), done.stderr


def test_the_sample_is_the_layer_of_the_guide():
    guide = texts("docs/how-to/cpp.md", "cpp")
    assert (PROJECT / "shuffle.cpp").read_text("utf-8").partition("\n")[2] == guide[0]
