"""Measure the memory that an engine needs, in a separate process.

``python -m pytrtplugins.mlops.tables.memory`` is that process: it reads what to do from its arguments, and prints figures as JSON.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...engines import build, load_engine
from ...engines.base.engine_file import read_engine_file
from ...errors import ExecutionError
from ...utils.optional import onnx, require
from ...utils.text_formats import parse_json
from ...utils.user_module import import_user_module

__all__ = ["Memory", "measure_memory"]

_MIB = 1 << 20
_RUNS = 3
_ON_GPU = ("cuda", "tensorrt")
_SECONDS = 600
_MOST_BYTES = 1 << 16  # of what the process prints


@dataclass(frozen=True)
class Memory:
    """Memory for loading an engine and running it, in MiB.

    Attributes:
        host: Highest use of the process's memory beyond that before the engine was loaded: weights and buffers, libraries left out.
        gpu: Growth of the GPU's used memory, CUDA's own context left out; 0 on a CPU.
        weights: Constants, as the engine keeps them on its device; None: its library does not tell.
        activations: What a context needs to run, on the engine's device: on a GPU as the engine tells, None where it does not; on a CPU
            the growth of the process's memory from the loaded engine to the highest use in the runs.
    """

    host: float
    gpu: float
    weights: float | None = None
    activations: float | None = None


def measure_memory(path: Path, batch: int, modules: Sequence[str] = ()) -> Memory:
    """Load an engine, whose only free dim is the batch, in a new process, and run it on noise: ``batch`` rows.

    Raises:
        ExecutionError: the process failed.
    """
    command = [
        sys.executable,
        "-m",
        __name__,
        json.dumps({"path": str(path), "batch": batch, "modules": list(modules)}),
    ]
    try:
        process = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ExecutionError(f"measuring the memory of {path} took more than {_SECONDS} s") from error
    if process.returncode:
        error_lines = process.stderr.decode(errors="replace").strip().splitlines()
        raise ExecutionError(
            f"measuring the memory of {path}: {error_lines[-1] if error_lines else f'exit code {process.returncode}'}"
        )
    memory = parse_json(process.stdout, "what the process printed", max_bytes=_MOST_BYTES)
    return Memory(**memory)


def _main(arguments: dict[str, Any]) -> dict[str, float | None]:
    for module in arguments["modules"]:
        import_user_module(module)
    name = read_engine_file(arguments["path"]).metadata["engine"]
    cupy = require("cupy", extra="cuda") if name in _ON_GPU else None
    if cupy is not None:
        cupy.zeros(1)  # CUDA's context
    else:
        _load_library(name)
    before = _reset_peak()
    free = 0 if cupy is None else cupy.cuda.runtime.memGetInfo()[0]
    engine = load_engine(arguments["path"])
    random = np.random.default_rng(0)
    inputs = {}
    for desc in engine.inputs:
        dims = [dim if isinstance(dim, int) else arguments["batch"] for dim in desc.dims]
        inputs[desc.name] = random.random(dims, np.float32).astype(desc.dtype.numpy)
    loading = _bytes("VmHWM")
    loaded = _reset_peak()
    with engine.create_context() as context:
        for _ in range(_RUNS):
            context.run(inputs)
        used = 0 if cupy is None else free - cupy.cuda.runtime.memGetInfo()[0]
        running = _bytes("VmHWM")
        activations = max(0, running - loaded) if cupy is None else context.activation_bytes()
    weights = engine.weight_bytes()  # behind the runs: asking may take memory
    return {
        "host": max(0, loading - before, running - before) / _MIB,
        "gpu": max(0, used) / _MIB,
        "weights": None if weights is None else weights / _MIB,
        "activations": None if activations is None else activations / _MIB,
    }


def _reset_peak() -> int:
    """Return free memory to the system and reset the peak; returns the memory in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _bytes("VmRSS")


def _load_library(engine: str) -> None:
    """Run a network of one node, so that what an engine needs for any network does not count."""
    dims = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "library", dims[:1], dims[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    with build(model, engine=engine, progress=False).create_context() as context:
        context.run({"x": np.zeros(1, np.float32)})


def _bytes(name: str) -> int:
    """A memory figure of this process, from /proc."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise ExecutionError(f"/proc/self/status has no {name}")


if __name__ == "__main__":
    print(json.dumps(_main(json.loads(sys.argv[1]))))
