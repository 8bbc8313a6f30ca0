"""Run the benchmarks, keep their results, and write docs/lab/benchmarks.md with its charts."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytrtplugins.utils.cpu_features import cpu_features
from pytrtplugins.utils.numbers import FloatRange

from .gpu import records as gpu_records
from .pages.machine import about, processor_name
from .pages.results import DOCS, publish
from .record import Record

ROOT = Path(__file__).parents[1]
PACKAGES = ("pytrtplugins", "openvino", "onnxruntime", "opencv-python-headless", "numpy", "onnx")
LONGEST_S = 3600
"""Of a row: a compiler may search for longer than a test of this project may take."""


def main() -> int:
    """Parse arguments, run pytest, write the report."""
    arguments = parse()
    name = arguments.name or ("gpu" if arguments.gpu else "this-machine")
    with tempfile.TemporaryDirectory() as folder:
        records, code = arguments.record, 0
        if not records:
            records = [arguments.json or Path(folder) / "record.json"]
            if arguments.gpus:
                run_on_gpus(arguments)
            else:
                code = run(records[0], _files(arguments), arguments.k, arguments.seconds, arguments.rows)
            if not records[0].exists():
                print("no row was finished, so nothing is written")
                return code
        if arguments.no_page:
            return code
        if arguments.gpu:
            pages = gpu_records.keep(records, name, arguments.docs, arguments.keep)
        else:
            pages = [publish(json.loads(records[0].read_text("utf-8")), "benchmarks", name, arguments.docs)]
    print(f"written: {', '.join(map(str, pages))}")
    return code


def parse() -> argparse.Namespace:
    """The arguments, of which some need others."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="BENCHMARK_THREADS sets the number of threads; DARKNET_LIBRARY the darknet to race; BENCHMARK_CFG the network; "
        "BENCHMARK_ZOO, with --gpu -k zoo, some of the zoo's networks, and BENCHMARK_ZOO_PEERS more peers: compile, max-autotune, "
        "onnxruntime.",
    )
    add = parser.add_argument
    add("--gpu", action="store_true", help="time engine cuda and its peers on this machine's GPU")
    add("--operators", action="store_true", help="with --gpu: time single operators beside PyTorch's, and nothing else")
    add("--name", help="heading of the tables in docs/lab/benchmarks.md (default: this-machine, gpu)")
    add("--docs", type=Path, default=DOCS, help="folder of benchmarks.md (default: %(default)s)")
    add("-k", default="", metavar="WORDS", help="only rows that match, as in pytest -k")
    add(
        "--seconds", type=FloatRange(0, 31_536_000),
        help="with --gpu: do not begin a row after this time, with --gpus end then; the record lists the rows that were left out",
    )  # fmt: skip
    add(
        "--rows", type=Path, metavar="FILE",
        help="with --gpu: only the rows of this list, in its order; a record lists what it left out in the same words",
    )  # fmt: skip
    add(
        "--gpus", type=lambda text: text.split(","), metavar="0,1",
        help="with --rows, --seconds and --json: run on these GPUs at the same time; each takes the next group of rows, and an "
        "empty line ends a group",
    )  # fmt: skip
    add(
        "--work", type=Path, metavar="FOLDER",
        help="with --gpus: where records, logs and caches stay, so that a later run goes on (default: beside the record)",
    )  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="keep the record in this file")
    add("--no-page", action="store_true", help="with --json: write no page")
    add("--keep", action="store_true", help="with --gpu: keep the rows of the results that are not new")
    add(
        "--record", type=Path, nargs="+", metavar="FILE",
        help="run nothing: write the report of such files, made perhaps on another machine; with --gpu several are joined",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.json and arguments.json.exists() and not arguments.json.is_file():
        parser.error(f"argument --json: {arguments.json}: expected a regular file, which is read again for the report")
    if arguments.gpus and not (arguments.gpu and arguments.rows and arguments.seconds and arguments.json):
        parser.error("argument --gpus: it needs --gpu, --rows, --seconds and --json")
    if arguments.operators and not arguments.gpu:
        parser.error("argument --operators: it needs --gpu")
    if arguments.no_page and not arguments.json:
        parser.error("argument --no-page: it needs --json, or nothing is kept")
    return arguments


def run_on_gpus(arguments: argparse.Namespace) -> None:
    """Run a list of rows on several GPUs; Ctrl-C, or another signal, ends it in order."""
    from .gpu import lanes

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    work = arguments.work or arguments.json.with_suffix(".work")
    with contextlib.suppress(KeyboardInterrupt):
        lanes.run(arguments.rows, arguments.gpus, arguments.seconds, arguments.json, work)


def _files(arguments: argparse.Namespace) -> list[str]:
    """The files of the rows."""
    if not arguments.gpu:
        return ["test_yolov2.py"]
    parts = ("operators",) if arguments.operators else ("image", "race", "steps", "build", "zoo")
    return [f"gpu/test_{part}.py" for part in parts]


def run(record: Path, files: Sequence[str], words: str, seconds: float | None, rows: Path | None = None) -> int:
    """Run the rows of files; gives pytest's exit code. The record has what is done when Ctrl-C, or another signal, comes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    Path(os.path.realpath(record)).unlink(missing_ok=True)
    if seconds is not None:
        os.environ["BENCHMARK_SECONDS"] = str(seconds)
    if rows is not None:
        os.environ["BENCHMARK_ROWS"] = str(rows)
    options = [
        *(str(ROOT / "benchmarks" / name) for name in files),
        "--benchmark-columns=median,min,rounds",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "default",
        "-o",
        f"timeout={LONGEST_S}",
    ]
    facts = _facts(any(name.startswith("gpu/") for name in files))
    return int(pytest.main([*options, *(["-k", words] if words else [])], [Record(record, facts)]))


def _facts(gpu: bool) -> dict[str, Any]:
    """What a record says beside its rows; of a GPU, gpu/conftest.py adds more."""
    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    if gpu:
        return {"subject": "gpu", **about((), command)}
    from .runners import BASELINE, THREADS

    features = ", ".join(sorted(cpu_features())) or "features unknown"
    processor = f"{processor_name()} ({features}), {THREADS} threads, Linux"
    return {"subject": "cpu", **about(PACKAGES, "", f"Baseline of the pairs: {BASELINE}.", processor)}


if __name__ == "__main__":
    sys.exit(main())
