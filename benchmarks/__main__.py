"""Run the benchmarks and write docs/benchmarks.md with its chart."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pytest

from .report import write

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Parse arguments, run pytest, write the report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="BENCHMARK_THREADS sets the number of threads; DARKNET_LIBRARY the darknet to race; BENCHMARK_CFG the network.",
    )
    parser.add_argument(
        "--name", default="this-machine", help="heading of the table in docs/benchmarks.md (default: %(default)s)"
    )
    parser.add_argument(
        "--docs", type=Path, default=ROOT / "docs", help="folder of benchmarks.md (default: %(default)s)"
    )
    parser.add_argument("-k", default="", metavar="WORDS", help="only runners that match, as in pytest -k")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        options = [
            str(ROOT / "benchmarks"),
            f"--benchmark-json={record}",
            "--benchmark-columns=median,min,rounds",
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        code = pytest.main([*options, *(["-k", arguments.k] if arguments.k else [])])
        if record.exists() and record.stat().st_size:
            write(record, arguments.name, arguments.docs)
            print(f"written: {arguments.docs / 'benchmarks.md'}")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
