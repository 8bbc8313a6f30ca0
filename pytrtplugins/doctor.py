"""Examine the installation: installed packages, missing ones of each extra, and a test run of each engine."""

from __future__ import annotations

import json
import operator
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import numpy as np

from . import native
from .cuda.compiler import find_nvcc, find_nvrtc
from .errors import PytrtpluginsError
from .utils.cpu_features import describe_cpu
from .utils.optional import installed_version, onnx
from .version import __version__

__all__ = [
    "PURPOSES",
    "EngineReport",
    "Extra",
    "Report",
    "examine",
    "extras",
    "machine",
    "try_engine",
    "try_engine_alone",
]

PURPOSES = {
    "onnx": "ONNX models, engine reference",
    "cpu": "engines cpu and onnxruntime",
    "cuda": "engine cuda",
    "cublaslt": "cuBLASLt's kernels in engine cuda",
    "nvrtc": "compiling CUDA kernels without nvcc",
    "tensorrt": "engine tensorrt",
    "rtx": "engine tensorrt_rtx",
    "pycuda": "arrays of PyCUDA",
    "vision": "reading and writing images",
    "track": "following objects in videos, with trackers beside it",
    "jpeg": "decoding JPEG files faster",
    "nvjpeg": "decoding JPEG files on a GPU",
    "cli": "the command pytrt",
    "caffe": "Caffe models",
    "serve": "pytrt serve",
    "serve-ray": "pytrt serve --ray",
    "otel": "pytrt serve --trace-endpoint",
    "grpc": "pytrt serve --grpc-port",
    "pipeline": "pytrt pipeline",
    "evaluate": "average precision",
    "native": "building plugins in C++",
    "samples": "the samples' images",
    "torch": "exporting from PyTorch",
    "train": "training the sample network",
    "train-ray": "training on several machines",
}
"""The package's extras, and what needs them."""

_DISTRIBUTION, _TOGETHER = "pytrtplugins", ("all", "dev", "docs", "mutation")
_SECONDS, _TOLERANCE = 120, 1e-3


@dataclass(frozen=True)
class Extra:
    """An extra of the package: the packages that one part needs.

    Attributes:
        name: As ``pip install "pytrtplugins[name]"`` takes it.
        purpose: What needs them.
        installed: Package and version of those that are here.
        missing: Packages that are not.
    """

    name: str
    purpose: str
    installed: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that installs the missing packages; empty if none is missing."""
        return f'pip install "{_DISTRIBUTION}[{self.name}]"' if self.missing else ""


@dataclass(frozen=True)
class EngineReport:
    """State of one engine on this machine.

    Attributes:
        name: The engine's.
        reason: Why it cannot be used, with the next command; empty where it can.
        details: Versions and devices.
        failure: What went wrong when it ran a small network; empty where the network's numbers were right, or it was not run.
        build_s: Seconds of the build.
        run_us: Microseconds of a run, median.
        builds: Whether it makes engine files here all the same, for other machines.
    """

    name: str
    reason: str
    details: str
    failure: str = ""
    build_s: float = 0.0
    run_us: float = 0.0
    builds: bool = False


@dataclass(frozen=True)
class Report:
    """Result of `examine`.

    Attributes:
        machine: Versions, processor and compilers, by what they are called.
        extras: The package's extras.
        engines: All engines.
    """

    machine: dict[str, str]
    extras: tuple[Extra, ...]
    engines: tuple[EngineReport, ...]

    @property
    def healthy(self) -> bool:
        """Whether every available engine computed correct numbers."""
        return not any(engine.failure for engine in self.engines)


def examine(run: bool = True) -> Report:
    """Examine this installation and this machine.

    Args:
        run: Let each engine that is available run a small network, in a process of its own, which may crash; one that only builds
            here builds it.
    """
    from .engines import availability  # which takes long to import, and `machine` needs no engine
    from .engines.registry import engine_class

    engines = []
    for engine in availability():
        report = EngineReport(engine.name, engine.reason, engine.details, builds=engine.builds and not engine.available)
        should_try = run and (engine.available or engine.builds) and engine_class(engine.name).computes
        engines.append(try_engine_alone(report) if should_try else report)
    return Report(machine(), extras(), tuple(engines))


def extras() -> tuple[Extra, ...]:
    """Return the package's extras with their installed packages, by pip's metadata; empty if the package is not installed."""
    from importlib import metadata  # which takes long to import

    try:
        lines = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return ()
    packages: dict[str, list[str]] = {}
    for line in lines:
        name, extra = re.match(r"[\w.-]+", line), re.search(r"""extra\s*==\s*["']([\w-]+)["']""", line)
        is_counted = extra is not None and extra[1] not in _TOGETHER
        if name and extra and is_counted and name[0] != _DISTRIBUTION and _is_for_this_python(line):
            packages.setdefault(extra[1], []).append(name[0])
    result = []
    for extra_name, names in packages.items():
        versions = {name: installed_version(name) for name in names}
        installed = tuple((name, version) for name, version in versions.items() if version)
        missing = tuple(name for name, version in versions.items() if not version)
        result.append(Extra(extra_name, PURPOSES.get(extra_name, ""), installed, missing))
    return tuple(result)


def _is_for_this_python(requirement: str) -> bool:
    """Return whether a requirement applies to this Python, by its marker ``python_version``, without `packaging`."""
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}
    conditions = re.findall(r"""python_version\s*(<=|>=|==|<|>)\s*["'](\d+)\.(\d+)["']""", requirement)
    return all(compare[sign](sys.version_info[:2], (int(major), int(minor))) for sign, major, minor in conditions)


def try_engine_alone(engine: EngineReport) -> EngineReport:
    """Run `try_engine` in a process of its own; a crash or a hang is reported as a failure."""
    code = f"import json; from pytrtplugins.doctor import try_engine; print(json.dumps(try_engine({engine.name!r})))"
    try:
        process = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return replace(engine, failure=f"it did not end within {_SECONDS} s")
    if process.returncode:
        last_line = (process.stderr.strip().splitlines() or [""])[-1]
        problem = f"its process ended with {process.returncode}" + (f": {last_line}" if last_line else "")
        return replace(engine, failure=problem)
    failure, build_s, run_us = json.loads(process.stdout.strip().rpartition("\n")[2])
    return replace(engine, failure=failure, build_s=build_s, run_us=run_us)


def try_engine(name: str) -> tuple[str, float, float]:
    """Build and run a small network on an engine.

    Args:
        name: The engine's.

    Returns:
        What went wrong, empty where nothing did; seconds of the build; microseconds of a run, median, 0 where it only builds here.
    """
    from . import build

    helper, rng = onnx.helper, np.random.default_rng(0)
    x = rng.standard_normal((1, 8, 16, 16), dtype=np.float32)
    weights = rng.standard_normal((16, 8, 1, 1), dtype=np.float32)
    values = [helper.make_tensor_value_info(key, 1, (1, channels, 16, 16)) for key, channels in (("x", 8), ("y", 16))]
    nodes = [helper.make_node("Conv", ["x", "w"], ["sums"]), helper.make_node("Relu", ["sums"], ["y"])]
    graph = helper.make_graph(nodes, "doctor", values[:1], values[1:], [onnx.numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    begin = time.perf_counter()
    try:
        engine = build(model, engine=name, progress=False)
        build_s = time.perf_counter() - begin
        if not engine.availability().available:
            return "", build_s, 0.0
        with engine.create_context() as context:
            actual = context.run({"x": x})["y"]
            times = []
            for _ in range(20):
                begin = time.perf_counter()
                context.run({"x": x})
                times.append(time.perf_counter() - begin)
    except PytrtpluginsError as error:
        return str(error), 0.0, 0.0
    expected = np.maximum(np.einsum("kc,nchw->nkhw", weights[:, :, 0, 0], x), 0)
    distance = float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))
    failure = "" if distance < _TOLERANCE else f"a convolution is {distance:.1e} of its norm off"
    return failure, build_s, 1e6 * float(np.median(times))


def machine() -> dict[str, str]:
    """Return name → text of versions, processor, GPU with its driver, and compilers."""
    nvrtc = find_nvrtc()[1]
    compiler = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), "")
    return {
        "pytrtplugins": f"{__version__}, {os.path.dirname(__file__)}",
        "Python": f"{platform.python_version()}, {sys.executable}",
        "system": platform.platform(),
        "processor": describe_cpu(),
        "GPU": _gpus(),
        "C++ compiler": compiler or "none: apt-get install g++",
        "CUDA compiler": ", ".join(filter(None, (nvrtc and f"NVRTC {nvrtc}", find_nvcc()[1])))
        or f'none: pip install "{_DISTRIBUTION}[nvrtc]"',
        "native part": "built" if native.available() else "not built: python -m pytrtplugins.native",
    }


# -- inside --------------------------------------------------------------------------------------------------------------


def _gpus() -> str:
    """Return names and driver of the GPUs, by nvidia-smi, as text."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return "none: NVIDIA's driver is not installed"
    command = [path, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    return "; ".join(process.stdout.splitlines()) or f"nvidia-smi: {process.stderr.strip()}"
