"""Repeat recorded launches on a GPU in a separate program: ``python -m pytrtplugins.check.replay FOLDER``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..cuda import Constant, CudaKernel, LaunchRecord, SymbolicArray
from .cases import Case

__all__ = ["Buffers", "main", "repeat", "write"]


class Buffers:
    """The memory of recorded launches: the case's inputs, outputs and workspace, as bytes.

    Inputs have the case's values; outputs and workspace are zeros.
    """

    def __init__(self, case: Case) -> None:
        with case.runner() as runner:
            workspace = np.zeros(int(runner.workspace_bytes), np.uint8)
        self._bytes: dict[tuple[str, int], Any] = {("workspace", 0): workspace}
        for index, array in enumerate(case.inputs()):
            self._bytes["input", index] = np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
        for index, desc in enumerate(case.descs()[1]):
            size = math.prod(map(int, desc.dims)) * desc.dtype.numpy.itemsize
            self._bytes["output", index] = np.zeros(size, np.uint8)

    def view(self, place: SymbolicArray) -> Any:
        """The array at a recorded address."""
        begin = int(place.offset)
        data = self._bytes[place.role, place.index][begin : begin + int(place.nbytes)]
        return data.view(place.dtype).reshape(tuple(int(dim) for dim in place.shape))

    def items(self) -> list[tuple[str, Any]]:
        """Name and bytes of each."""
        return [(f"{role}{index}", data) for (role, index), data in self._bytes.items()]


def write(folder: Path, case: Case, launches: Sequence[LaunchRecord]) -> None:
    """Write launches, and the memory that they begin with, for `main`."""
    arrays = dict(Buffers(case).items())
    rows = []
    for number, launch in enumerate(launches):
        arguments: list[Any] = []
        for index, value in enumerate(launch.arguments):
            if isinstance(value, Constant):
                arrays[f"constant{number}_{index}"] = value.array
                arguments.append({"constant": f"constant{number}_{index}"})
            elif isinstance(value, SymbolicArray):
                shape = [int(dim) for dim in value.shape]
                place = {"buffer": f"{value.role}{value.index}", "offset": int(value.offset)}
                arguments.append({**place, "shape": shape, "dtype": value.dtype.name})
            else:
                arguments.append(value)
        kernel = launch.kernel
        facts = {"source": kernel.source, "name": kernel.name, "label": kernel.label, "options": kernel.options}
        threads = [int(size) for size in launch.threads]
        sizes = {"threads": threads, "block": launch.block, "shared_bytes": int(launch.shared_bytes)}
        rows.append({"kernel": facts, "arguments": arguments, **sizes})
    np.savez(folder / "arrays.npz", **arrays)
    (folder / "launches.json").write_text(json.dumps(rows), encoding="utf-8")


def repeat(folder: Path, xp: Any) -> dict[str, Any]:
    """Repeat the launches that `write` wrote, and give inputs, outputs and workspace afterwards, as bytes.

    ``xp`` is CuPy, or NumPy: where the arrays are, and so the kernels run.
    """
    with np.load(folder / "arrays.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    written = {
        name: xp.asarray(data) if name.startswith("input") else xp.empty(data.shape, data.dtype)
        for name, data in arrays.items()
        if not name.startswith("constant")
    }
    for row in json.loads((folder / "launches.json").read_text(encoding="utf-8")):
        facts = row["kernel"]
        options = (*facts["options"], "-lineinfo")
        kernel = CudaKernel(facts["source"], facts["name"], label=facts["label"], options=options)
        arguments = [_argument(value, arrays, written) for value in row["arguments"]]
        kernel.launch(*arguments, threads=row["threads"], block=row["block"], shared_bytes=row["shared_bytes"])
    return written


def main(folder: Path) -> None:
    """Repeat the launches on the current GPU, with one allocation per array."""
    import cupy

    cupy.cuda.set_allocator(None)
    repeat(folder, cupy)
    cupy.cuda.Device().synchronize()


def _argument(value: Any, arrays: dict[str, Any], written: dict[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    if "constant" in value:
        return Constant(arrays[value["constant"]])
    dtype = np.dtype(value["dtype"])
    size = int(np.prod(value["shape"], dtype=np.int64)) * dtype.itemsize
    data = written[value["buffer"]][value["offset"] : value["offset"] + size]
    return data.view(dtype).reshape(value["shape"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
