"""The file names under which TensorRT for RTX's parser looks for its library, with wheels that have them and that have not."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import sys
import tempfile
from pathlib import Path

import pytest

from pytrtplugins.engines.tensorrt import rtx

from .conftest import SUBSTRATE

MAIN, PARSER = "libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A folder as the wheel makes it, and the libraries that are loaded."""
    folder, loaded = tmp_path / "tensorrt_rtx_libs", list[Path]()
    folder.mkdir()
    spec = importlib.machinery.ModuleSpec("tensorrt_rtx_libs", None, origin=str(folder / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "tensorrt_rtx_libs" else None)
    monkeypatch.setattr(ctypes, "CDLL", lambda path, mode: loaded.append(Path(path)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return folder, loaded


def test_the_name_that_a_wheel_lacks_is_a_link_in_a_folder_of_the_process(wheel):
    folder, loaded = wheel
    for name in (PARSER, MAIN):
        (folder / name).write_bytes(b"library")
    before = sorted(path.name for path in folder.iterdir())
    rtx._load_libraries()
    assert [path.name for path in loaded] == [MAIN, PARSER]  # the parser needs the other one
    links = loaded[0].parent
    assert links != folder
    assert {path.name: path.resolve().name for path in links.iterdir()} == {
        MAIN: MAIN,
        PARSER: PARSER,
        "libtensorrt_rtx.so": MAIN,
    }
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_wheel_that_has_the_name_is_left_to_itself(wheel):
    folder, loaded = wheel
    for name in (MAIN, PARSER, "libtensorrt_rtx.so"):
        (folder / name).write_bytes(b"library")
    rtx._load_libraries()
    assert loaded == []


@pytest.mark.skipif(SUBSTRATE != "rtx", reason="for TensorRT for RTX. Do: make test-tensorrt")
def test_the_installed_package_is_loaded_once_and_nothing_is_written_into_it():
    module = rtx.load_module()
    folder = Path(importlib.util.find_spec("tensorrt_rtx_libs").origin).parent
    mapped = {
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libtensorrt_rtx.so" in line
    }
    assert len(mapped) == 1
    assert not [path for path in folder.iterdir() if path.is_symlink()]
    assert sys.modules[rtx.MODULE] is module
