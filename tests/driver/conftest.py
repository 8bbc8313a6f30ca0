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
from pytrtplugins.engines.tensorrt.memory import use_memory
from pytrtplugins.errors import EngineError

from ..host_memory import HostMemory
from .driver import Driver

ROOT = Path(__file__).parents[2]
HEADERS = "Do: TENSORRT_INCLUDE=/path/to/TensorRT/include make test-tensorrt"


def header_version(folder: Path) -> tuple[int, int]:
    """Major and minor version of TensorRT's headers."""
    text = (folder / "NvInferVersion.h").read_text()
    numbers = dict(re.findall(r"#define (?:NV_TENSORRT|TRT)_(MAJOR|MINOR)(?:_ENTERPRISE)? (\d+)", text))
    return int(numbers["MAJOR"]), int(numbers["MINOR"])


def find_headers(major: int) -> tuple[Path | None, str]:
    """The folder of headers of a major version, and why there is none."""
    folders = [Path(folder) for folder in os.environ.get("TENSORRT_INCLUDE", "").split(":") if folder]
    if not folders:
        return None, f"TensorRT's headers are not here. {HEADERS}"
    for folder in folders:
        if header_version(folder)[0] == major:
            return folder, ""
    return None, f"none of {list(map(str, folders))} has headers of TensorRT {major}. {HEADERS}"


def find_api() -> tuple[_api.Api | None, str]:
    """TensorRT's package, and why there is none."""
    try:
        return _api.load("tensorrt"), ""
    except EngineError as error:
        return None, f"{str(error).splitlines()[0]} Do: make test-tensorrt"


def missing() -> str:
    """Why the driver cannot be built; empty when it can."""
    found, reason = find_api()
    if found is None:
        return reason
    for tool in ("cmake", "g++"):
        if shutil.which(tool) is None:
            return f"no {tool}. Do: apt-get install cmake g++"
    return find_headers(found.major)[1]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where the driver cannot be built, skip one test of each file for all that need it, with the reason."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        needs = {"api", "request"} & set(getattr(item, "fixturenames", ()))
        if needs and item.path.parent == Path(__file__).parent:
            files.setdefault(item.path, []).append(item)
    reason = missing() if files else ""
    if reason:
        for first, *others in files.values():
            first.add_marker(pytest.mark.skip(reason=f"{len(others) + 1} tests: {reason}"))
            config.hook.pytest_deselected(items=others)
        left_out = {id(item) for _, *others in files.values() for item in others}
        items[:] = [item for item in items if id(item) not in left_out]


def build_driver(headers: Path, *options: str, suffix: str = "", target: str = "all") -> Path:
    """Compile the driver and the libraries; the folder where they lie."""
    build = ROOT / "build" / f"driver-{'.'.join(map(str, header_version(headers)))}{suffix}"
    settings = [f"-DTENSORRT_INCLUDE={headers}", "-DPYTRTPLUGINS_BRIDGE=OFF", "-DPYTRTPLUGINS_DRIVER=ON", *options]
    warnings = (
        "-DCMAKE_CXX_FLAGS=-Werror -Wno-error=maybe-uninitialized"  # a guess about kernels, which is wrong at times
    )
    for command in (["-S", ROOT, "-B", build, *settings, warnings], ["--build", build, "--target", target, "-j2"]):
        done = subprocess.run(["cmake", *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "plugins" / "tensorrt"


@pytest.fixture(scope="session")
def api() -> _api.Api:
    return _api.load("tensorrt")


def runtime_library(api: _api.Api) -> Path:
    """TensorRT's library beneath a package."""
    folder = Path(importlib.import_module(f"{api.name}_libs").__file__).parent
    suffix = api.name.partition("_")[2]
    return folder / f"libnvinfer{'_' if suffix else ''}{suffix}.so.{api.major}"


@pytest.fixture(scope="session")
def headers(api) -> Path | None:
    return find_headers(api.major)[0]


@pytest.fixture(scope="session")
def built(headers) -> Path:
    return build_driver(headers, "-DPYTRTPLUGINS_TENSORRT_HOST=ON")


@pytest.fixture(scope="session")
def shared_driver(api, built) -> Driver:
    return Driver(built, api, runtime_library(api))


@pytest.fixture
def driver(shared_driver) -> Iterator[Driver]:
    """TensorRT's part; the addresses it hands over are those of NumPy arrays."""
    shared_driver.log()
    with use_memory(HostMemory()):
        yield shared_driver
