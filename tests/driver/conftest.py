"""The driver, built against the headers of the TensorRT that is installed.

``TENSORRT_INCLUDE`` names one or several folders (parted by colons) with the headers of TensorRT 10 or 11, which NVIDIA
publishes in the folder ``include`` of its repository TensorRT; `make test-tensorrt` runs these tests for both.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrtplugins.engines.tensorrt import _api
from pytrtplugins.engines.tensorrt.memory import HostMemory, use_memory
from pytrtplugins.errors import EngineError

from .driver import Driver

ROOT = Path(__file__).parents[2]
HEADERS = "Do: TENSORRT_INCLUDE=/path/to/TensorRT/include make test-tensorrt"


def header_version(folder: Path) -> tuple[int, int]:
    """Major and minor version of TensorRT's headers."""
    text = (folder / "NvInferVersion.h").read_text()
    numbers = dict(re.findall(r"#define (?:NV_TENSORRT|TRT)_(MAJOR|MINOR)(?:_ENTERPRISE)? (\d+)", text))
    return int(numbers["MAJOR"]), int(numbers["MINOR"])


def find_headers(major: int) -> Path:
    """The folder of headers of a major version; skips where there is none."""
    folders = [Path(folder) for folder in os.environ.get("TENSORRT_INCLUDE", "").split(":") if folder]
    if not folders:
        pytest.skip(f"TensorRT's headers are not here. {HEADERS}")
    for folder in folders:
        if header_version(folder)[0] == major:
            return folder
    pytest.skip(f"none of {list(map(str, folders))} has headers of TensorRT {major}. {HEADERS}")


def build_driver(headers: Path, *options: str, target: str = "all") -> Path:
    """Compile the driver and the libraries; the folder where they lie."""
    for tool in ("cmake", "g++"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}. Do: apt-get install cmake g++")
    build = ROOT / "build" / f"driver-{'.'.join(map(str, header_version(headers)))}"
    settings = [f"-DTENSORRT_INCLUDE={headers}", "-DPYTRTPLUGINS_BRIDGE=OFF", "-DPYTRTPLUGINS_DRIVER=ON", *options]
    warnings = "-DCMAKE_CXX_FLAGS=-Werror"
    for command in (["-S", ROOT, "-B", build, *settings, warnings], ["--build", build, "--target", target, "-j2"]):
        done = subprocess.run(["cmake", *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "plugins" / "tensorrt"


@pytest.fixture(scope="session")
def api() -> _api.Api:
    try:
        return _api.load()
    except EngineError as error:
        pytest.skip(f"{str(error).splitlines()[0]} Do: make test-tensorrt")


def runtime_library(api: _api.Api) -> Path:
    """TensorRT's library beneath a package."""
    folder = Path(importlib.import_module(f"{api.name}_libs").__file__).parent
    suffix = api.name.partition("_")[2]
    return folder / f"libnvinfer{'_' if suffix else ''}{suffix}.so.{api.major}"


@pytest.fixture(scope="session")
def built(api) -> Path:
    return build_driver(find_headers(api.major), "-DPYTRTPLUGINS_TENSORRT_HOST=ON")


@pytest.fixture(scope="session")
def shared_driver(api, built) -> Driver:
    return Driver(built, api, runtime_library(api))


@pytest.fixture
def driver(shared_driver) -> Iterator[Driver]:
    """TensorRT's part; the addresses it hands over are those of NumPy arrays."""
    shared_driver.log()
    with use_memory(HostMemory()):
        yield shared_driver
