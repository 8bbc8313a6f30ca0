"""What an engine process spends on JPEG files: nvImageCodec with each of its decoders, then decoding and network.

``python -m benchmarks.serving.gpu_decoding --photos FOLDER``, on a machine with a GPU. Each way to wait for the GPU has a process of its
own. CPU time is that of all threads of the process. A row that cannot be had says why.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pytrtplugins import load_engine
from pytrtplugins.cuda.waits import CUDA_WAIT
from pytrtplugins.engines.cuda.device.device import CudaDevice, Device
from pytrtplugins.engines.cuda.run.decoding import JpegDecoder
from pytrtplugins.serving.model.defaults import Detector
from pytrtplugins.utils.numbers import FloatRange, IntRange

from . import photos

_PLAIN = ":fancy_upsampling=0"  # nvImageCodec's own default
_THRESHOLD = "nvjpeg_cuda_decoder:hybrid_huffman_threshold="  # pixels from which the GPU undoes the Huffman code
_ENGINE_BATCHES = (1, 8, 32)
DECODERS: dict[str, tuple[dict[str, Any], int]] = {
    "the server's": ({}, 1),
    "all, first batch of 1": ({"kinds": [()]}, 1),
    "all, first batch of 128": ({"kinds": [()]}, 128),
    "JPEG engines": ({"kinds": [("HW_GPU_ONLY",)]}, 1),
    "Huffman on the GPU": ({"kinds": [("HYBRID_CPU_GPU",)], "options": f"{_PLAIN} {_THRESHOLD}0"}, 1),
    "Huffman on the CPU": ({"kinds": [("HYBRID_CPU_GPU",)], "options": f"{_PLAIN} {_THRESHOLD}{1 << 40}"}, 1),
}
"""Name of a row → settings of the decoder, and the size of its first batch, which may fix what each kind of decoder gets."""


def main() -> int:
    """Measure, and print a table; gives the exit code."""
    given = _arguments()
    jpegs = photos.photos(given.photos)
    if given.wait_as_told:
        for row in _rows(given, jpegs):
            print(f"| {os.environ[CUDA_WAIT]} | {row} |", flush=True)
        return 0
    print(
        "| wait | decoder | batch | photos/s | CPU µs a photo | ms a batch: p50 / p99 |\n|---|---|---:|---:|---:|---:|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as name:
        again = [sys.executable, "-m", f"{__package__}.gpu_decoding", *sys.argv[1:], "--wait-as-told"]
        if not given.engine and not given.no_network:
            again += _built(Path(name))
        for wait in given.wait:
            code = subprocess.run(again, env={**os.environ, CUDA_WAIT: wait}, check=False).returncode
            if code:
                print(f"| {wait} | the process ended with {code} | | | | |", flush=True)
    return 0


def _rows(given: argparse.Namespace, jpegs: Sequence[bytes]) -> Iterator[str]:
    try:
        device = CudaDevice()
    except Exception as error:
        yield _reason("all", error)
        return
    yield from decoding(device, jpegs, given.batch, given.seconds)
    if given.engine:
        yield from _network(given.engine, jpegs, given.seconds)


def decoding(device: Device, jpegs: Sequence[bytes], batches: Sequence[int], seconds: float) -> Iterator[str]:
    """A row for each decoder and batch."""
    for name, (settings, first) in DECODERS.items():
        try:
            decoder = JpegDecoder(device, **settings)
            decoder.decode(_batch(jpegs, first))
            for size in batches:
                files = _batch(jpegs, size)
                refused = decoder.decode(files).count(None)
                if refused:
                    yield f"{name} | {size} | refuses {refused} photos | | "
                else:
                    yield f"{name} | {size} | {timed(partial(decoder.decode, files), size, seconds)}"
        except Exception as error:
            yield _reason(name, error)


def _network(engine: Path, jpegs: Sequence[bytes], seconds: float) -> Iterator[str]:
    """Rows with the detector as a server has it."""
    name = "decoding and network"
    try:
        model = Detector(load_engine(engine), engine.with_suffix(".names"), decode="gpu")
        for size in _ENGINE_BATCHES:
            batch: list[Any] = [{"jpeg": np.frombuffer(data, np.uint8)} for data in _batch(jpegs, size)]

            def run(batch: list[Any] = batch) -> None:
                found: Any = model.predict(batch)
                if not all(found.result() if hasattr(found, "result") else found):
                    raise ValueError("the GPU refuses a photo")

            yield f"{name} | {size} | {timed(run, size, seconds)}"
        model.close()
    except Exception as error:
        yield _reason(name, error)


def timed(run: Callable[[], object], photos: int, seconds: float) -> str:
    """Photos a second, CPU time, and latency of what is called again and again, after three calls that do not count."""
    for _ in range(3):
        run()
    took, begun, cpu = list[float](), time.perf_counter(), time.process_time()
    while not took or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    spent, whole, done = time.process_time() - cpu, time.perf_counter() - begun, photos * len(took)
    p50, p99 = np.quantile(took, (0.5, 0.99)) * 1e3
    return f"{done / whole:,.0f} | {1e6 * spent / done:,.0f} | {p50:.2f} / {p99:.2f}"


def _batch(jpegs: Sequence[bytes], size: int) -> list[bytes]:
    return list(itertools.islice(itertools.cycle(jpegs), size))


def _reason(name: str, error: Exception) -> str:
    text = " ".join(str(error).split()).replace("|", "/")[:200]
    return f"{name} | | {type(error).__name__}: {text} | | "


def _built(folder: Path) -> list[str]:
    """The option that names an engine built here, or nothing where none can be built."""
    try:
        return [
            "--model",
            str(photos.animals_engine(folder, "cuda", "fp16", "dynamic", settings={"batch": list(_ENGINE_BATCHES)})),
        ]
    except Exception as error:
        print(f"| | {_reason('decoding and network', error)} |", flush=True)
        return []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.gpu_decoding", description=__doc__)
    add = parser.add_argument
    add("--photos", type=Path, metavar="FOLDER", help="with .jpg files; default: scikit-image's, at 768x576")
    add("--batch", type=IntRange(1, 4096), nargs="+", default=[1, 8, 32, 128], help="photos that are decoded together")
    add("--wait", nargs="+", choices=["spin", "block"], default=["spin", "block"], help="how threads wait for the GPU")
    add("--seconds", type=FloatRange(0.01, 60), default=0.3, help="of each row (default: %(default)s)")
    add(
        "--model",
        dest="engine",
        type=Path,
        help="a detector of engine cuda, with its .names beside it; default: the shipped one, built now",
    )
    add("--no-network", action="store_true", help="measure decoding alone")
    add("--wait-as-told", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
