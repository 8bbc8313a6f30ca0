"""Bandwidth of Reorg's kernel on a GPU, beside a device-to-device copy of the same bytes: ``python -m benchmarks.reorg_bandwidth``.

Each case is compared with `Reorg.compute` on the same random tensor, element by element, before it is timed. Times are CUDA
events around one launch; kernel and copy take turns, and the medians are compared. Bytes count once read and once written.
The last lines are the time that one `enqueue` takes in Python, launch included.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pytrtplugins import DType, Plugin, TensorDesc
from pytrtplugins.cuda import gpu_reason
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.utils.numbers import IntRange

from .pages.machine import about
from .pages.results import publish, write_json

_ENOUGH = 0.85
_SHAPES = {"512 x 512": (64, 512, 512), "104 x 104": (64, 104, 104), "26 x 26": (64, 26, 26)}


def _random(cupy: Any, dims: tuple[int, ...], dtype: DType) -> Any:
    values = cupy.random.randint(-128, 128, dims, dtype=np.int8)
    return values if dtype is DType.INT8 else values.astype(dtype.numpy)


def _configured(plugin: Plugin, dims: tuple[int, ...], dtype: DType, layout: str) -> tuple[int, ...]:
    output = tuple(int(dim) for dim in plugin.all_output_dims([dims])[0])
    plugin.configure([TensorDesc("x", dims, dtype, layout)], [TensorDesc("y", output, dtype, layout)])
    return output


def _check(cupy: Any, plugin: Reorg, x: Any, y: Any, layout: str) -> None:
    """Require equality with `compute`, image by image."""
    for image in range(0, x.shape[0], max(1, x.shape[0] // 8)):
        given, found = x[image : image + 1], y[image : image + 1]
        if layout == "nhwc":
            n, c, h, w = given.shape
            given = given.reshape(n, h, w, c).transpose(0, 3, 1, 2)
            n, c, h, w = found.shape
            found = found.reshape(n, h, w, c).transpose(0, 3, 1, 2)
        if not bool((found == plugin.compute(given)).all()):
            raise SystemExit(f"{plugin!r}, {layout}, image {image}: the kernel differs from compute")


def _times(cupy: Any, stream: Any, functions: list[Callable[[], None]], rounds: int) -> list[float]:
    """Median milliseconds of each, taking turns."""
    taken: list[list[float]] = [[] for _ in functions]
    for number in range(rounds + 3):
        for function, found in zip(functions, taken, strict=True):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(stream)
            function()
            end.record(stream)
            end.synchronize()
            if number >= 3:
                found.append(cupy.cuda.get_elapsed_time(begin, end))
    return [statistics.median(found) for found in taken]


def measure(megabytes: int, rounds: int) -> list[dict[str, Any]]:
    """All cases; prints a line for each."""
    import cupy

    rows = []
    stream = cupy.cuda.Stream(non_blocking=True)
    for dtype in (DType.FLOAT32, DType.FLOAT16, DType.INT8):
        for layout in ("linear", "nhwc"):
            for reverse in (False, True):
                for name, image in _SHAPES.items():
                    plugin = Reorg(stride=2, reverse=reverse)
                    count = max(1, (megabytes << 20) // (int(np.prod(image)) * dtype.itemsize))
                    output = _configured(plugin, (count, *image), dtype, layout)
                    with stream:
                        x = _random(cupy, (count, *image), dtype)
                        y = cupy.full(output, 99, dtype.numpy)
                        twin = cupy.empty_like(x)

                        def kernel(plugin: Reorg = plugin, x: Any = x, y: Any = y) -> None:
                            plugin.enqueue([x], [y], None, stream)

                        def copy(x: Any = x, twin: Any = twin) -> None:
                            twin.data.copy_from_device_async(x.data, x.nbytes, stream)

                        kernel()
                        _check(cupy, plugin, x, y, layout)
                        kernel_ms, copy_ms = _times(cupy, stream, [kernel, copy], rounds)
                        row: dict[str, Any] = {
                            "dtype": str(dtype), "layout": layout, "reverse": reverse, "image": name, "bytes": int(x.nbytes),
                            "kernel_ms": kernel_ms, "copy_ms": copy_ms, "share": copy_ms / kernel_ms,
                        }  # fmt: skip
                        del x, y, twin, kernel, copy
                    cupy.get_default_memory_pool().free_all_blocks()
                    rows.append(row)
                    print(
                        f"{dtype!s:8} {layout:7} {'reverse' if reverse else 'forward'} {name:10} kernel {kernel_ms:7.3f} ms, "
                        f"copy {copy_ms:7.3f} ms ({2 * row['bytes'] / copy_ms / 1e9:5.2f} TB/s): {row['share']:.1%} of the copy",
                        flush=True,
                    )
    return rows


def python_time(rounds: int = 20000) -> dict[str, float]:
    """Microseconds of one `enqueue` on small tensors, launch included, while the GPU keeps up."""
    import cupy

    found = {}
    stream = cupy.cuda.Stream(non_blocking=True)
    for plugin, dims in ((Reorg(stride=2), (1, 4, 8, 8)), (Region(classes=20, num=5, softmax=True), (1, 125, 2, 2))):
        output = _configured(plugin, dims, DType.FLOAT16, "linear")
        x, y = cupy.zeros(dims, np.float16), cupy.zeros(output, np.float16)
        inputs, outputs, best = [x], [y], []
        for _ in range(5):
            begin = time.perf_counter()
            for _ in range(rounds // 5):
                plugin.enqueue(inputs, outputs, None, stream)
            best.append((time.perf_counter() - begin) / (rounds // 5) * 1e6)
            stream.synchronize()
        found[type(plugin).__name__] = min(best)
        print(f"one enqueue of {type(plugin).__name__} in Python: {min(best):.1f} us")
    return found


def main() -> int:
    """Measure; 1 where a linear case stays below the goal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reorg_bandwidth", description=__doc__)
    parser.add_argument(
        "--megabytes", type=IntRange(1, 65_536), default=512, help="size of the tensors (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=IntRange(1, 100_000), default=20)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--docs", type=Path, metavar="FOLDER", help="keep the results, and write benchmarks.md there")
    arguments = parser.parse_args()
    if reason := gpu_reason():
        print(reason)
        return 2
    rows = measure(arguments.megabytes, arguments.rounds)
    overhead = python_time()
    facts = about(("cupy-cuda13x", "numpy"), "python -m benchmarks.reorg_bandwidth")
    record = {"subject": "reorg", **facts, "rows": rows, "enqueue_us": overhead}
    if arguments.json:
        write_json(arguments.json, record)
    if arguments.docs:
        publish(record, "benchmarks", "reorg", arguments.docs)
    slow = [row for row in rows if row["share"] < _ENOUGH]
    print(f"{len(slow)} cases below {_ENOUGH:.0%} of the copy's bandwidth")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
