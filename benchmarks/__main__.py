"""Run the benchmarks and write docs/benchmarks.md with its charts."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from pytrtplugins.utils.numbers import Real

from . import report
from .gpu import report as gpu_report
from .record import Record

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Parse arguments, run pytest, write the report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="BENCHMARK_THREADS sets the number of threads; DARKNET_LIBRARY the darknet to race; BENCHMARK_CFG the network; "
        "BENCHMARK_ZOO, with --gpu -k zoo, some of the zoo's networks, and BENCHMARK_ZOO_PEERS more peers: compile, onnxruntime.",
    )
    parser.add_argument("--gpu", action="store_true", help="time engine cuda and its peers on this machine's GPU")
    parser.add_argument("--name", help="heading of the tables in docs/benchmarks.md (default: this-machine, gpu)")
    parser.add_argument(
        "--docs", type=Path, default=ROOT / "docs", help="folder of benchmarks.md (default: %(default)s)"
    )
    parser.add_argument("-k", default="", metavar="WORDS", help="only rows that match, as in pytest -k")
    parser.add_argument(
        "--seconds",
        type=Real(0, 31_536_000),
        help="with --gpu: do not begin a row after this time; the record lists the rows that were left out",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the record in this file")
    parser.add_argument(
        "--record", type=Path, nargs="+", metavar="FILE",
        help="run nothing: write the report of such files, made perhaps on another machine; with --gpu several are joined",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.json and arguments.json.exists() and not arguments.json.is_file():
        parser.error(f"argument --json: {arguments.json}: expected a regular file, which is read again for the report")
    name = arguments.name or ("gpu" if arguments.gpu else "this-machine")
    with tempfile.TemporaryDirectory() as folder:
        records, code = arguments.record, 0
        if not records:
            records = [arguments.json or Path(folder) / "record.json"]
            code = run(records[0], arguments.gpu, arguments.k, arguments.seconds)
            if not records[0].exists():
                print("no row was finished, so nothing is written")
                return code
        pages = (gpu_report if arguments.gpu else report).write(records, name, arguments.docs)
    print(f"written: {', '.join(map(str, pages))}")
    return code


def run(record: Path, gpu: bool, words: str, seconds: float | None) -> int:
    """Run the rows; gives pytest's exit code. The record has what is done when Ctrl-C, or another signal, comes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    Path(os.path.realpath(record)).unlink(missing_ok=True)
    if seconds is not None:
        os.environ["BENCHMARK_SECONDS"] = str(seconds)
    files = (
        [f"gpu/test_{part}.py" for part in ("image", "race", "steps", "build", "zoo")] if gpu else ["test_yolov2.py"]
    )
    options = [
        *(str(ROOT / "benchmarks" / name) for name in files),
        "--benchmark-columns=median,min,rounds",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "default",
    ]
    return int(pytest.main([*options, *(["-k", words] if words else [])], [Record(record)]))


if __name__ == "__main__":
    sys.exit(main())
