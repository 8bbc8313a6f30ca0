import ctypes
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins import _native_build, native
from tests.kept_builds import build_once

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def built():
    """The native part; it may lack only where it cannot be built."""
    if lacking := _native_build.missing():
        pytest.skip(f"plugins in C++ cannot be built here. Do: {' and then '.join(lacking)}")
    assert native.available(), "the native part can be built here, but is not. Do: make native"


@pytest.fixture(scope="session")
def compile_library(built, tmp_path_factory):
    """Compile C++ sources into a shared library, as a user would."""

    def compile_(name, *sources, options=()):
        library = tmp_path_factory.mktemp("native") / f"lib{name}.so"
        warnings = ["-Wall", "-Wextra", "-Werror"]
        command = ["g++", "-std=c++17", "-O1", *warnings, "-shared", "-fPIC", f"-I{native.include_dir()}"]
        command += [*os.environ.get("CXXFLAGS", "").split(), *options]
        headers = sorted(path for path in native.include_dir().rglob("*") if path.is_file())
        build_once(
            library,
            [*sources, *headers],
            command,
            lambda path: subprocess.run([*command, *map(str, sources), "-o", str(path)], check=True),
        )
        return library

    return compile_


@pytest.fixture(scope="session")
def acme_path(compile_library):
    return compile_library("acme", HERE / "acme.cpp")


@pytest.fixture(scope="session")
def acme(acme_path):
    return ptp.load_library(acme_path)


@pytest.fixture
def call(acme, acme_path):
    """Run a plugin in C++: gives the outputs, or the kind and message of the C++ exception."""
    function = ctypes.CDLL(str(acme_path)).call

    def call_(handle, x, shape):
        y = np.full(shape, np.nan, np.float32)
        dims, message = (ctypes.c_int64 * x.ndim)(*x.shape), ctypes.create_string_buffer(4000)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (x, y)]
        kind = function(ctypes.c_void_p(handle.address), dims, x.ndim, *pointers, message)
        return (kind, message.value.decode()) if kind else y

    return call_


@pytest.fixture(scope="session")
def layers(built):
    """The package's layers in C++."""
    return native.layers()
